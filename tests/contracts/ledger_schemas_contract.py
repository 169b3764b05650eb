"""What every ledger must do for schemas: of two runners that learn of one type at once, one is kept."""

from __future__ import annotations

from contracts.ledger_samples import a_batch, after

from eventbridge.ledger import Ledger
from eventbridge.ledger.schemas import LearnedSchema
from eventbridge.model.event_schema import EventSchema, SchemaChange
from eventbridge.policy.operational_event import schema_event


def learned(sampled: int, version: int, seconds: float) -> LearnedSchema:
    """Return what a batch makes of the type, read at a version, with the event that reports it."""
    schema = EventSchema("rail", "train.left", version, sampled, after(0), after(seconds), {})
    change = SchemaChange("field_lost", "rail", "train.left", after(seconds), "data.platform", ("string",))
    return LearnedSchema(schema, (schema_event(change, []),))


class SchemasContract:
    """The part about schemas."""

    def test_of_two_that_learn_at_once_the_first_is_kept(self, ledger: Ledger, rival: Ledger) -> None:
        """The other's batch is buffered all the same; its version is outdated, so it reports nothing."""
        for number, runner in enumerate(["flights", "trains", "ships", "buses"]):
            assert ledger.batches.plan(a_batch(f"batch-{number}", runner=runner), [])

        assert ledger.schemas.end_landing("batch-0", [learned(3, 0, 1)])
        assert rival.schemas.end_landing("batch-1", [learned(5, 0, 2)])
        assert [each.sampled for each in ledger.schemas.list_named("train.left")] == [3]
        assert ledger.schemas.end_landing("batch-2", [learned(8, 1, 3)])
        assert rival.schemas.end_landing("batch-3", [learned(9, 1, 4)])

        assert [each.sampled for each in rival.schemas.list_named("train.left")] == [8]
        assert {ledger.batches.get(f"batch-{number}").state for number in range(4)} == {"buffered"}
        assert [each.time for each in ledger.operational_events.waiting(9)] == [after(1), after(3)]

    def test_a_batch_that_is_buffered_already_teaches_nothing(self, ledger: Ledger, rival: Ledger) -> None:
        """If a batch lands twice, one landing ends it; the other gets False and has changed nothing."""
        assert ledger.batches.plan(a_batch(), [])
        assert rival.schemas.end_landing("batch-1", [])

        assert not ledger.schemas.end_landing("batch-1", [learned(3, 0, 1)])
        assert ledger.schemas.list_named("train.left") == []
