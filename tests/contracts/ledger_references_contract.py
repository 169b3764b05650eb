from __future__ import annotations

from dataclasses import replace

import pytest
from contracts.ledger_samples import Clock, a_batch, a_retry_batch, after

from eventbridge.errors import LedgerError
from eventbridge.ledger import Ledger
from eventbridge.model.batch import Batch
from eventbridge.model.reference import Reference
from eventbridge.model.rule_on_hold import RuleOnHold


def a_reference(**changes: object) -> Reference:
    """Return a reference of batch-1, due at once, that expires after a day."""
    row = Reference(
        "batch-1", "flights", "late", "Budget", (("buffer/a.parquet", "3-5"),), 3, after(0), after(0), after(86_400)
    )
    return replace(row, **changes)  # type: ignore[arg-type]


def publish(ledger: Ledger, *references: Reference, batch_id: str = "batch-1") -> bool:
    """Publish a batch as routed, with references."""
    ledger.plan_batch(a_batch(batch_id), [])
    ledger.move_batch(batch_id, "planned", "buffered")
    return ledger.publish_chunks(batch_id, after(60), [], references)


def a_batch_of_references(batch_id: str = "retry-1") -> Batch:
    """Return a batch that takes references up, as planning makes it."""
    return replace(a_retry_batch(batch_id), bus="flights-bus", state="buffered")


class ReferencesContract:
    """What a ledger must do with shares that are routed later, and with rules that are on hold."""

    def test_references_come_with_the_chunks_or_not_at_all(self, ledger: Ledger, rival: Ledger) -> None:
        """They are published in one transaction with the batch; of two that publish one does."""
        row = a_reference()

        assert publish(ledger, row)
        assert not rival.publish_chunks("batch-1", after(60), [], [row])
        assert rival.references() == rival.references_of("batch-1") == [replace(row, reference_id=1)]
        assert ledger.waiting_references() == ledger.waiting_references("flights") == rival.references()
        assert ledger.waiting_references("other") == []

    def test_one_name_is_one_reference(self, ledger: Ledger) -> None:
        """Two references of one batch, rule and reason are a fault of the caller, and nothing is published."""
        with pytest.raises(LedgerError):
            publish(ledger, a_reference(), a_reference())
        assert ledger.batch("batch-1").state == "buffered"

    def test_a_reference_is_taken_once(self, ledger: Ledger, rival: Ledger) -> None:
        """Of two batches that take the same reference one gets it; committing closes it."""
        publish(ledger, a_reference(), a_reference(rule="early"))

        assert ledger.plan_references(a_batch_of_references(), [1, 2])
        assert not rival.plan_references(a_batch_of_references("retry-2"), [2])
        assert [row.reference_id for row in rival.references_taken_by("retry-1")] == [1, 2]
        ledger.publish_chunks("retry-1", after(60), [], [a_reference(batch_id="retry-1", tries=1)])
        ledger.begin_settlement("retry-1")
        ledger.commit_batch("retry-1", "flights", [], after(9), "000000")

        assert [(row.state, row.closed_by, row.tries) for row in rival.references()] == [
            ("closed", "retry-1", 0),
            ("closed", "retry-1", 0),
            ("scheduled", None, 1),
        ]

    def test_the_watcher_sees_what_is_due_and_what_is_taken(self, ledger: Ledger, rival: Ledger) -> None:
        """Due: its time has come, it is neither on hold nor taken, and no batch has taken another one of its rule."""
        publish(ledger, a_reference(), a_reference(rule="early", due_at=after(5)), a_reference(reason="RouteFailed"))
        assert [ledger.reference_due(after(seconds)) for seconds in (-1, 0)] == [False, True]
        assert not ledger.reference_taken()

        assert ledger.plan_references(a_batch_of_references(), [1])

        assert rival.reference_taken()
        assert [rival.reference_due(after(seconds)) for seconds in (4, 5)] == [False, True]
        ledger.hold_references("early")
        assert not rival.reference_due(after(5))

    def test_what_is_deferred_is_due_later(self, ledger: Ledger, rival: Ledger) -> None:
        """Not what has reached its age, what is on hold, or another rule's."""
        publish(
            ledger,
            a_reference(due_at=after(-9)),
            a_reference(reason="Behind", due_at=after(-9), expires_at=after(-1)),
            a_reference(reason="Held", due_at=after(-9), state="on_hold"),
            a_reference(rule="early", due_at=after(-9)),
        )

        assert ledger.defer_references("late", after(30)) == 1
        assert [row.due_at for row in rival.references()] == [after(30), after(-9), after(-9), after(-9)]

    def test_time_held_is_no_age(self, ledger: Ledger, clock: Clock) -> None:
        """What is on hold expires later by as long as it was on hold; what is taken is left alone."""
        publish(ledger, a_reference(), a_reference(rule="early"))
        clock.pass_seconds(10)
        assert ledger.hold_references("late") == 1
        clock.pass_seconds(100)

        assert ledger.release_references("late") == 1
        assert ledger.release_references("early") == 0
        late, early = ledger.references()
        assert (late.state, late.due_at, late.expires_at) == ("scheduled", after(110), after(86_500))
        assert (late.on_hold_seconds, early.on_hold_seconds) == (100, 0)
        assert early.expires_at == after(86_400)

    def test_a_rule_is_held_until_it_is_released(self, ledger: Ledger, rival: Ledger, clock: Clock) -> None:
        """The last version that was on hold, and why, are told; released it is told no more."""
        ledger.hold_rule("late", "v1", "it loops")
        clock.pass_seconds(5)
        rival.hold_rule("late", "v2", "it loops still")

        assert ledger.rules_on_hold() == {"late": RuleOnHold("late", "v2", "it loops still", after(5))}
        ledger.release_rule("late")
        assert rival.rules_on_hold() == {}
