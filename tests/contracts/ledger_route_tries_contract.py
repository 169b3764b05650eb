from __future__ import annotations

from contracts.ledger_samples import a_batch

from eventbridge.ledger import Ledger


class RouteTriesContract:
    """What a ledger must do with the tries of slices."""

    def test_a_try_counts_until_it_is_taken_back(self, ledger: Ledger) -> None:
        """Each try of a slice returns the number of tries so far; one that is taken back does not count."""
        ledger.batches.plan(a_batch(), [])

        reported = [ledger.route_tries.begin("batch-1", name) for name in ("a", "a", "b", "a")]
        ledger.route_tries.take_back("batch-1", "a")
        ledger.route_tries.take_back("batch-1", "b")

        assert reported == [1, 2, 1, 3]
        assert ledger.route_tries.counts("batch-1") == {"a": 2}

    def test_tries_of_two_processes_add_up(self, ledger: Ledger, rival: Ledger) -> None:
        """Two that try the same slice count both of their tries, and other batches none of them."""
        ledger.batches.plan(a_batch(), [])

        assert (ledger.route_tries.begin("batch-1", ""), rival.route_tries.begin("batch-1", "")) == (1, 2)
        assert (rival.route_tries.counts("batch-1"), rival.route_tries.counts("batch-2")) == ({"": 2}, {})

    def test_tries_of_an_earlier_batch_count_once(self, ledger: Ledger) -> None:
        """What is handed over with the first try is added then, and never again."""
        ledger.batches.plan(a_batch(), [])

        assert [ledger.route_tries.begin("batch-1", "rule/x", before=2) for _ in range(2)] == [3, 4]
        ledger.route_tries.take_back("batch-1", "rule/x")
        assert ledger.route_tries.counts("batch-1") == {"rule/x": 3}
