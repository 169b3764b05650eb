"""A repair makes a batch that cannot be committed committable, and no delivery is lost."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import replace

import pytest
from pipeline.delivering import REFUSED, RUNNER, RunningClock, Sending, http
from pipeline.repairing import repair, settled
from pipeline.settled_rows import table_of
from pyarrow import parquet

from eventbridge.control.consecutive_batches import deliver_redrive
from eventbridge.dead_letters.redrive_plan import begin_redrive, plan_redrive
from eventbridge.dead_letters.selection import Selection
from eventbridge.errors import ReconciliationError
from eventbridge.model.batch import BatchFile
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.retry.plan import plan_retries, settle_stale
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.settlement import publish_settlement, read_settled
from eventbridge.repair.audit import audit
from eventbridge.repair.repair import repair_batch
from eventbridge.routing.task import InProcessRouter
from eventbridge.store import layout
from eventbridge.store.parquet import read_rows, read_table, write_table


@pytest.mark.parametrize("kind", ["buffer", "delivery", "outcome", "settlement", "dead_letter"])
@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_an_unreadable_file_is_rebuilt(sending: Sending, kind: str, damage: str) -> None:
    """After the repair the batch commits, every delivery is accounted for, and the store's record names the file."""
    batch = settled(sending)
    runtime = sending.runtime
    (file, *_) = [each for each in runtime.ledger.files.list_for_batch(batch.batch_id, kind) if each.path]  # type: ignore[arg-type]
    assert file.path is not None
    whole = runtime.store.get(file.path)
    runtime.store.delete(file.path)
    if damage == "damaged":
        runtime.store.put(file.path, whole[: len(whole) // 2])
    with pytest.raises(ReconciliationError, match="eventbridge batches repair"):
        commit(runtime, batch.batch_id)

    planned = repair(sending, batch, dry_run=True)
    assert (planned.unreadable, planned.record) == ((file.path,), "")
    assert runtime.ledger.batches.get(batch.batch_id).state == "settling"
    done = repair(sending, batch)

    assert done.committed
    assert done.rebuilt == ((file.path,) if kind in ("buffer", "delivery", "dead_letter") else ())
    assert json.loads(runtime.store.get(done.record))["unreadable"] == [file.path]
    assert sum(runtime.ledger.offsets.committed(RUNNER).values()) == 4
    assert audit(runtime).differences == ()
    assert not repair(sending, batch).needed
    statuses = [row.status for row in read_settled(runtime, batch.batch_id)]
    assert len(statuses) == 12
    if kind == "outcome":
        assert done.unproven == statuses.count("unknown") > 0
    else:
        assert Counter(statuses) == {"delivered": 4, "dead_lettered": 4, "retry_scheduled": 4}


def test_an_archive_file_that_nothing_was_routed_of_is_read_from_the_bus_again(sending: Sending) -> None:
    """The same rows in the same order, and the batch continues where it stood; also of two files that have one
    event.
    """
    same = b'{"specversion": "1.0", "id": "same", "source": "/shop", "type": "order.placed", "data": {"id": "same"}}'
    runtime = sending.begin(3, b"no event", same, same, crm="/healthy/crm")
    batch_id = listen(runtime, RUNNER)
    assert batch_id is not None
    buffer(runtime, batch_id)
    before = [
        read_table(runtime.store, str(file.path))
        for file in runtime.ledger.files.list_for_batch(batch_id, "buffer")
        if file.path
    ]
    for file in runtime.ledger.files.list_for_batch(batch_id, "buffer"):
        if file.path:
            runtime.store.delete(file.path)

    done = repair(sending, runtime.ledger.batches.get(batch_id))
    again = [read_table(runtime.store, path) for path in done.rebuilt]
    sending.deliver()

    assert [each.drop(["arrived_at"]) for each in again] == [each.drop(["arrived_at"]) for each in before]
    assert sum(each["status"].to_pylist().count("duplicate") for each in before) == 1
    assert len(sending.requests()) == 4
    assert audit(runtime).differences == ()


@pytest.mark.parametrize("damage", ["gone", "damaged"])
@pytest.mark.parametrize("retransform", [False, True])
def test_the_inputs_of_a_redrive_are_rebuilt_from_its_dead_letters(
    sending: Sending, retransform: bool, damage: str
) -> None:
    """The inputs of a redrive are rebuilt from requests or events, and then every delivery is delivered or pending."""
    sending.begin(3, crm=http(REFUSED, retry="{policy: custom, max_retries: 0}", ordering_key="$.data.id"))
    sending.deliver()
    sending.publish(2)
    sending.deliver()
    sending.rules(crm=http("/healthy/crm", ordering_key="$.data.id"))
    runtime = sending.runtime
    router = InProcessRouter(runtime.store)
    redrive_request = begin_redrive(runtime, Selection(), "run", rate=None, retransform=retransform, again=False)
    batch_id = str(plan_redrive(runtime, redrive_request.redrive_id).batch_id)
    (file,) = runtime.ledger.files.list_for_batch(batch_id, "buffer" if retransform else "delivery")
    whole = runtime.store.get(str(file.path))
    runtime.store.delete(str(file.path))
    if damage == "damaged":
        runtime.store.put(str(file.path), whole[: len(whole) // 2])
    if not retransform:
        with pytest.raises(ReconciliationError, match="eventbridge batches repair"):
            write_dead_letters(runtime, batch_id)

    planned = repair_batch(runtime, batch_id, router, dry_run=True)
    done = repair_batch(runtime, batch_id, router, dry_run=False)

    assert planned.rebuilt == done.rebuilt == (file.path,)
    assert read_rows(runtime.store, str(file.path), "0-4").equals(parquet.read_table(io.BytesIO(whole)))
    deliver_redrive(runtime, redrive_request.redrive_id, router)
    sending.deliver()
    assert len({request["webhook_id"] for request in sending.requests()}) == len(sending.requests()) == 5
    assert audit(runtime).differences == ()


@pytest.mark.parametrize("damage", ["gone", "damaged", "other"])
def test_the_manifest_of_a_committed_batch_is_rebuilt(sending: Sending, damage: str) -> None:
    """A rebuilt manifest is reconciled; a record in the store names it, and tells whether it could be read."""
    batch = settled(sending)
    runtime = sending.runtime
    assert commit(runtime, batch.batch_id)
    path = layout.manifest(batch.planned_at, batch.batch_id)
    right = runtime.store.get(path)
    if damage == "gone":
        runtime.store.delete(path)
    else:
        runtime.store.put(path, right[:-100] if damage == "damaged" else right.replace(b'"valid": 4', b'"valid": 5'))

    assert repair(sending, batch, dry_run=True).rebuilt == (path,)
    assert len(audit(runtime).differences) == 1
    done = repair(sending, batch)

    assert (done.wrong, done.unreadable) == (((path,), ()) if damage == "other" else ((), (path,)))
    assert done.committed
    assert json.loads(runtime.store.get(done.record))["rebuilt"] == [path]
    assert runtime.store.get(path) == right
    assert audit(runtime).differences == ()


def test_a_difference_that_no_file_explains_is_reported(sending: Sending) -> None:
    """The repair reports a readable settlement that is wrong, because nothing can rebuild it."""
    batch = settled(sending)
    runtime = sending.runtime
    assert commit(runtime, batch.batch_id)
    (settlement,) = runtime.ledger.files.list_for_batch(batch.batch_id, "settlement")
    write_table(runtime.store, str(settlement.path), read_table(runtime.store, str(settlement.path)).slice(0, 11))

    with pytest.raises(ReconciliationError, match=r"it is not reconciled.*copy of the store"):
        repair(sending, batch)


def test_a_batch_that_cannot_be_settled_keeps_no_other_from_it(sending: Sending, clock: RunningClock) -> None:
    """If one of two retry batches whose runs died has lost a file, the other one's deliveries are retried."""
    runtime = sending.begin(2, settings={"retry_max_per_target": 2}, crm=REFUSED)
    sending.deliver()
    sending.publish(2)
    sending.deliver()
    sending.rules(crm="/healthy/crm")
    clock.advance(2 * 3600)
    broken, sound = (str(plan_retries(runtime, RUNNER).batch_id) for _ in range(2))
    (chunk,) = runtime.ledger.chunks.list_for_batch(broken)
    for piece in chunk.pieces:
        runtime.store.delete(piece.file)
    clock.advance(120)

    with pytest.raises(ReconciliationError, match=f"eventbridge batches repair {broken}"):
        settle_stale(runtime)

    assert [runtime.ledger.batches.get(each).state for each in (broken, sound)] == ["settling", "committed"]


def test_a_surplus_is_settled_again(sending: Sending) -> None:
    """A settlement that names a delivery twice is replaced, and the record names the delivery."""
    batch = settled(sending)
    runtime = sending.runtime
    (file,) = runtime.ledger.files.list_for_batch(batch.batch_id, "settlement")
    rows = list(read_settled(runtime, batch.batch_id))
    publish_settlement(runtime, batch, 1, [table_of([rows[0], rows[-1]])], "000000")
    with pytest.raises(ReconciliationError, match="contains deliveries twice"):
        commit(runtime, batch.batch_id)

    done = repair(sending, batch)

    assert (done.committed, len(done.surplus), done.unproven) == (True, 2, 0)
    assert file.path in done.set_aside
    assert runtime.store.exists(str(file.path))
    assert audit(runtime).differences == ()


def test_a_segment_that_is_lost_before_the_settlement(sending: Sending) -> None:
    """The deliveries of a segment lost before the settlement are unknown, and retries deliver them under their ids."""
    batch = sending.routed(4, good="/healthy/good")
    runtime = sending.runtime
    sending.push(batch)
    (segment, *_) = runtime.ledger.files.list_for_batch(batch.batch_id, "outcome")
    runtime.store.delete(str(segment.path))

    done = repair(sending, batch)
    sending.deliver()

    assert done.committed
    ids = [request["webhook_id"] for request in sending.requests()]
    assert (len(ids), len(set(ids))) == (8, 4)
    assert audit(runtime).differences == ()


def test_a_file_that_cannot_be_rebuilt_is_refused(sending: Sending) -> None:
    """An archive file that the bus cannot reproduce, and a batch past its retention, are not changed."""
    batch = settled(sending)
    runtime = sending.runtime
    (archive, *_) = [each for each in runtime.ledger.files.list_for_batch(batch.batch_id, "buffer") if each.path]
    whole = runtime.store.get(str(archive.path))
    runtime.store.delete(str(archive.path))

    settings = runtime.settings.model_copy(update={"event_max_size": 20})  # so that a former event is malformed
    smaller = replace(runtime, settings=settings)
    with pytest.raises(ReconciliationError, match=f"{archive.path} cannot be rebuilt.*other rows"):
        repair_batch(smaller, batch.batch_id, InProcessRouter(runtime.store), dry_run=False)
    assert not runtime.store.exists(str(archive.path))
    runtime.store.put(str(archive.path), whole)
    assert commit(runtime, batch.batch_id)
    (settlement,) = runtime.ledger.files.list_for_batch(batch.batch_id, "settlement")
    runtime.store.delete(str(settlement.path))
    with pytest.raises(ReconciliationError, match="committed"):
        repair(sending, batch)


def test_a_repair_waits_for_deliveries_taken_by_another_batch(sending: Sending) -> None:
    """Deliveries that were pending and are in progress must not become pending twice."""
    batch = settled(sending)
    runtime = sending.runtime
    (settlement,) = runtime.ledger.files.list_for_batch(batch.batch_id, "settlement")
    runtime.store.delete(str(settlement.path))
    sending.site.clock.advance(5_000)
    assert sending.retry() is not None

    with pytest.raises(ReconciliationError, match="taken by another batch"):
        repair(sending, batch)

    assert runtime.ledger.files.list_for_batch(batch.batch_id, "settlement") == [
        BatchFile(batch.batch_id, "settlement", "000000", settlement.path, 12)
    ]
