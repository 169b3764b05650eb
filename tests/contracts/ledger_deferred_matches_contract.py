from __future__ import annotations

from dataclasses import replace

import pytest
from contracts.ledger_samples import Clock, a_batch, a_retry_batch, after

from eventbridge.errors import LedgerError
from eventbridge.ledger import Ledger
from eventbridge.model.batch import Batch
from eventbridge.model.pending import DeferredMatch
from eventbridge.model.rule_state import RuleOnHold


def a_deferred_match(**changes: object) -> DeferredMatch:
    """Return a deferred match of batch-1, due at once, that expires after a day."""
    row = DeferredMatch(
        "batch-1", "flights", "late", "budget", (("buffer/a.parquet", "3-5"),), 3, after(0), after(0), after(86_400)
    )
    return replace(row, **changes)  # type: ignore[arg-type]


def publish(ledger: Ledger, *deferred_matches: DeferredMatch, batch_id: str = "batch-1") -> bool:
    """Publish a batch as routed, with deferred matches."""
    ledger.batches.plan(a_batch(batch_id), [])
    ledger.batches.move(batch_id, "planned", "buffered")
    return ledger.chunks.publish(batch_id, after(60), [], deferred_matches)


def a_batch_of_deferred_matches(batch_id: str = "retry-1") -> Batch:
    """Return a batch that takes deferred matches up, as planning makes it."""
    return replace(a_retry_batch(batch_id), bus="flights-bus", state="buffered")


class DeferredMatchesContract:
    """What a ledger must do with shares that are routed later, and with rules that are on hold."""

    def test_deferred_matches_come_with_the_chunks_or_not_at_all(self, ledger: Ledger, rival: Ledger) -> None:
        """They are published in one transaction with the batch; of two that publish one does."""
        row = a_deferred_match()

        assert publish(ledger, row)
        assert not rival.chunks.publish("batch-1", after(60), [], [row])
        assert (
            rival.deferred_matches.all()
            == rival.deferred_matches.list_for_batch("batch-1")
            == [replace(row, deferred_match_id=1)]
        )
        assert (
            ledger.deferred_matches.waiting()
            == ledger.deferred_matches.waiting("flights")
            == rival.deferred_matches.all()
        )
        assert ledger.deferred_matches.waiting("other") == []

    def test_one_name_is_one_reference(self, ledger: Ledger) -> None:
        """Two deferred matches of one batch, rule and reason are a fault of the caller, and nothing is published."""
        with pytest.raises(LedgerError):
            publish(ledger, a_deferred_match(), a_deferred_match())
        assert ledger.batches.get("batch-1").state == "buffered"

    def test_a_deferred_match_is_taken_once(self, ledger: Ledger, rival: Ledger) -> None:
        """Of two batches that take the same deferred match one gets it; committing closes it."""
        publish(ledger, a_deferred_match(), a_deferred_match(rule="early"))

        assert ledger.deferred_matches.take(a_batch_of_deferred_matches(), [1, 2])
        assert not rival.deferred_matches.take(a_batch_of_deferred_matches("retry-2"), [2])
        assert [row.deferred_match_id for row in rival.deferred_matches.list_taken_by("retry-1")] == [1, 2]
        ledger.chunks.publish("retry-1", after(60), [], [a_deferred_match(batch_id="retry-1", tries=1)])
        ledger.settlement.begin("retry-1")
        ledger.settlement.commit("retry-1", "flights", [], after(9), "000000")

        assert [(row.state, row.closed_by, row.tries) for row in rival.deferred_matches.all()] == [
            ("closed", "retry-1", 0),
            ("closed", "retry-1", 0),
            ("scheduled", None, 1),
        ]

    def test_the_watcher_sees_what_is_due_and_what_is_taken(self, ledger: Ledger, rival: Ledger) -> None:
        """Due: its time has come, it is neither on hold nor taken, and no batch has taken another one of its rule."""
        publish(
            ledger,
            a_deferred_match(),
            a_deferred_match(rule="early", due_at=after(5)),
            a_deferred_match(reason="route_failed"),
        )
        assert [ledger.deferred_matches.has_due(after(seconds)) for seconds in (-1, 0)] == [False, True]
        assert not ledger.deferred_matches.has_taken()

        assert ledger.deferred_matches.take(a_batch_of_deferred_matches(), [1])

        assert rival.deferred_matches.has_taken()
        assert [rival.deferred_matches.has_due(after(seconds)) for seconds in (4, 5)] == [False, True]
        ledger.deferred_matches.hold("early")
        assert not rival.deferred_matches.has_due(after(5))

    def test_a_deferred_match_is_due_later(self, ledger: Ledger, rival: Ledger) -> None:
        """Not what has reached its age, what is on hold, or another rule's."""
        publish(
            ledger,
            a_deferred_match(due_at=after(-9)),
            a_deferred_match(reason="behind", due_at=after(-9), expires_at=after(-1)),
            a_deferred_match(reason="on_hold", due_at=after(-9), state="on_hold"),
            a_deferred_match(rule="early", due_at=after(-9)),
        )

        assert ledger.deferred_matches.defer("late", after(30)) == 1
        assert [row.due_at for row in rival.deferred_matches.all()] == [after(30), after(-9), after(-9), after(-9)]

    def test_time_held_is_no_age(self, ledger: Ledger, clock: Clock) -> None:
        """What is on hold expires later by as long as it was on hold; what is taken is left alone."""
        publish(ledger, a_deferred_match(), a_deferred_match(rule="early"))
        clock.pass_seconds(10)
        assert ledger.deferred_matches.hold("late") == 1
        clock.pass_seconds(100)

        assert ledger.deferred_matches.release("late") == 1
        assert ledger.deferred_matches.release("early") == 0
        late, early = ledger.deferred_matches.all()
        assert (late.state, late.due_at, late.expires_at) == ("scheduled", after(110), after(86_500))
        assert (late.on_hold_seconds, early.on_hold_seconds) == (100, 0)
        assert early.expires_at == after(86_400)

    def test_a_rule_is_held_until_it_is_released(self, ledger: Ledger, rival: Ledger, clock: Clock) -> None:
        """The last version that was on hold is returned with its reason; after a release it is not."""
        ledger.rules.hold("late", "v1", "it loops")
        clock.pass_seconds(5)
        rival.rules.hold("late", "v2", "it loops still")

        assert ledger.rules.list_on_hold() == {"late": RuleOnHold("late", "v2", "it loops still", after(5))}
        ledger.rules.release("late")
        assert rival.rules.list_on_hold() == {}
