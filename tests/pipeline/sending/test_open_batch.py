"""The ordinary stages finish a batch that a streaming task left open, and send only what no segment has."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pipeline.delivering import RUNNER, RunningClock, Sending, rules

from eventbridge.delivery.rows import OutcomeRow, outcome_table
from eventbridge.delivery.segments import write_open_segment, write_segment
from eventbridge.errors import UserError
from eventbridge.event.cloudevent import parse_event
from eventbridge.event.ids import delivery_id, new_batch_id
from eventbridge.model.batch import Batch, Range
from eventbridge.model.partition import Partition
from eventbridge.pipeline.deliver import push_and_settle
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.route.stage import route
from eventbridge.repair.audit import audit
from eventbridge.repair.repair import repair_batch
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.stop import Stop
from eventbridge.store.rule_sets import freeze_rules

Q0, Q1 = Partition("placed", "", 0), Partition("placed", "", 1)


def opened(sending: Sending) -> Batch:
    """Open a batch of the runner as a streaming task does, which it takes for six seconds."""
    runtime = sending.runtime
    assert listen(runtime, RUNNER) is None, "it registers the runner"
    now = runtime.clock()
    assert runtime.ledger.streaming.acquire_lease(RUNNER, "one", now + timedelta(seconds=6))
    frozen = freeze_rules(runtime.store, runtime.rule_set().for_runner(RUNNER))
    batch = Batch(new_batch_id(now), "normal", RUNNER, "orders", "open", frozen, planned_at=now)
    assert runtime.ledger.batches.plan(batch, [Range(Q0, 0, 0), Range(Q1, 0, 0)])
    return batch


def delivered(sending: Sending, numbers: Sequence[int]) -> Any:
    """Return the rows that say that these orders were delivered."""
    events = [parse_event(sending.order(number), max_bytes=1 << 20) for number in numbers]
    ids = [delivery_id("orders", event.source, event.id, "orders", "crm") for event in events]
    now = datetime.now(UTC)
    return outcome_table([OutcomeRow(each, "orders", "crm", 1, True, now, 1.0, "delivered", code=200) for each in ids])


def test_only_what_no_segment_shows_is_sent_again(sending: Sending, clock: RunningClock) -> None:
    """Found after the streaming task, an open batch ends where its last segment says; its former task has lost it."""
    sending.rules(crm="/healthy/crm")
    batch = opened(sending)
    sending.publish(6)
    assert write_open_segment(sending.runtime, batch, 0, {Q0: 1, Q1: 1}, delivered(sending, [1, 2]))
    assert write_open_segment(sending.runtime, batch, 1, {Q0: 2, Q1: 2}, delivered(sending, [3]))

    clock.advance(7)
    sending.deliver()

    assert len(sending.requests()) == 3
    assert sending.runtime.ledger.batches.get(batch.batch_id).state == "committed"
    assert sending.runtime.ledger.offsets.committed(RUNNER) == {Q0: 3, Q1: 3}
    assert not write_open_segment(sending.runtime, batch, 2, {Q0: 3, Q1: 3}, delivered(sending, [5]))
    assert audit(sending.runtime).differences == ()


def test_deliveries_recorded_by_a_killed_push_of_an_open_batch_are_not_sent_again(
    sending: Sending, clock: RunningClock
) -> None:
    """Segments of the streaming task are read once for all chunks; those of a push count beside them."""
    sending.rules(crm="/healthy/crm")
    runtime, batch = sending.runtime, opened(sending)
    sending.publish(6)
    assert write_open_segment(runtime, batch, 0, {Q0: 3, Q1: 3}, delivered(sending, [1, 2]))
    clock.advance(7)
    assert listen(runtime, RUNNER) == batch.batch_id
    buffer(runtime, batch.batch_id)
    (chunk_id,) = route(runtime, batch.batch_id, InProcessRouter(runtime.store))
    killed = runtime.ledger.chunks.claim(batch.batch_id, chunk_id, "killed")
    assert killed is not None
    assert write_segment(runtime, batch, chunk_id, killed.claim, 0, delivered(sending, [3]))

    push_and_settle(runtime, batch.batch_id, [chunk_id], Stop())

    assert len(sending.requests()) == 3
    assert audit(runtime).differences == ()


def test_an_open_batch_is_not_taken_while_its_streaming_task_lasts(sending: Sending, clock: RunningClock) -> None:
    """Neither a run nor a repair touches it before; a run of the stages begins nothing else beside it."""
    sending.rules(crm="/healthy/crm")
    batch = opened(sending)
    sending.publish(2)
    router = InProcessRouter(sending.runtime.store)

    assert sending.deliver_batch() is None
    with pytest.raises(UserError, match="is open: a streaming task of runner 'orders' is delivering its events"):
        repair_batch(sending.runtime, batch.batch_id, router, dry_run=False)

    clock.advance(7)
    assert sending.deliver_batch() == batch.batch_id
    sending.deliver()
    assert len(sending.requests()) == 2
    assert audit(sending.runtime).differences == ()


def test_an_open_batch_is_audited_as_one_in_progress(sending: Sending) -> None:
    """What it has recorded so far is not a difference."""
    sending.rules(crm="/healthy/crm")
    batch = opened(sending)
    sending.publish(2)
    assert write_open_segment(sending.runtime, batch, 0, {Q0: 1, Q1: 1}, delivered(sending, [1, 2]))

    assert audit(sending.runtime).differences == ()
    assert audit(sending.runtime, batch.batch_id).differences == ()


def test_an_open_batch_of_a_runner_without_rules_is_finished_by_their_new_one(
    sending: Sending, clock: RunningClock
) -> None:
    """Not while the streaming task continues; then the new runner has it through the stages, and continues
    behind it.
    """
    sending.rules(crm="/healthy/crm")
    batch = opened(sending)
    sending.publish(4)
    assert write_open_segment(sending.runtime, batch, 0, {Q0: 1, Q1: 1}, delivered(sending, [1, 2]))
    sending.write(rules({"crm": "/healthy/crm"}, runner="new"))

    assert sending.deliver_batch("new") is None
    clock.advance(7)
    assert sending.deliver_batch("new") == batch.batch_id
    while sending.deliver_batch("new") is not None:
        pass

    assert sending.runtime.ledger.batches.get(batch.batch_id).state == "committed"
    assert len(sending.requests()) == 2
    assert audit(sending.runtime).differences == ()
