"""A repair rebuilds dead letters exactly, or writes nothing."""

from __future__ import annotations

import pytest
from pipeline.delivering import REFUSED, Sending
from pipeline.repairing import repair, settled
from stored import dead_letters

from eventbridge.control.consecutive_batches import deliver_redrive
from eventbridge.dead_letters.redrive_plan import begin_redrive, plan_redrive
from eventbridge.dead_letters.selection import Selection
from eventbridge.errors import ReconciliationError
from eventbridge.model.batch import FileKind
from eventbridge.repair.audit import audit
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.batch_files import dead_letter_files
from eventbridge.store import layout
from eventbridge.store.parquet import read_rows, read_table, write_table


@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_dead_letters_of_a_committed_batch_are_rebuilt(sending: Sending, damage: str) -> None:
    """All rows are rebuilt exactly: refused and malformed ones, and those of a redrive with the earlier attempts.

    Until then, a search for dead letters names the batch to repair.
    """
    runtime = sending.begin(2, b"no event", 1, crm="/bad/crm", other="/bad/other")
    sending.deliver()
    request = begin_redrive(runtime, Selection(target="crm"), "run", rate=None, retransform=False, again=False)
    deliver_redrive(runtime, request.redrive_id, InProcessRouter(runtime.store))
    before = list(dead_letters(runtime, whole=True))
    assert len(before) == 1 + 2 * 3 + 3  # malformed, refused, and refused again
    assert max(len(each["attempts"]) for each in before) == 2
    paths = dead_letter_files(runtime)
    for path in paths:
        whole = runtime.store.get(path)
        runtime.store.delete(path)
        if damage == "damaged":
            runtime.store.put(path, whole[: len(whole) // 2])
    broken = {layout.batch_of_dead_letters(path) for path in paths}
    with pytest.raises(ReconciliationError, match="eventbridge batches repair"):
        list(dead_letters(runtime))

    assert repair(sending, runtime.ledger.batches.get(min(broken)), dry_run=True).committed
    done = [
        repair(sending, runtime.ledger.batches.get(each)) for each in sorted(broken)
    ]  # the redrive's after what it took

    assert sorted(path for each in done for path in each.rebuilt) == sorted(paths)
    assert all(each.committed and runtime.store.exists(each.record) for each in done)
    assert list(dead_letters(runtime, whole=True)) == before
    assert audit(runtime).differences == ()


def test_a_wrong_dead_letter_file_is_rebuilt_before_and_after_the_commit(sending: Sending) -> None:
    """A readable file with another row than was dead-lettered is noticed, and its rows are rebuilt."""
    batch = settled(sending)
    runtime = sending.runtime
    (path,) = dead_letter_files(runtime)
    right = runtime.store.get(path)

    for state in ("settling", "committed"):
        assert runtime.ledger.batches.get(batch.batch_id).state == state
        table = read_table(runtime.store, path)
        write_table(runtime.store, path, table.slice(0, 3))
        assert repair(sending, batch, dry_run=True).wrong == (path,)
        assert repair(sending, batch).rebuilt == (path,)
        assert runtime.store.get(path) == right

    assert audit(runtime).differences == ()
    assert not repair(sending, batch).needed


def test_dead_letters_are_rebuilt_after_their_deliveries(sending: Sending) -> None:
    """If both files of a committed batch are missing, deliveries are routed again before dead letters are written."""
    runtime = sending.begin(2, crm="/bad/crm")
    sending.deliver()
    (batch,) = runtime.ledger.batches.find(limit=None)
    before = list(dead_letters(runtime, whole=True))
    gone = [
        str(file.path)
        for kind in ("delivery", "dead_letter")
        for file in runtime.ledger.files.list_for_batch(batch.batch_id, kind)
    ]  # type: ignore[arg-type]
    for path in gone:
        runtime.store.delete(path)

    done = repair(sending, batch)

    assert done.rebuilt == tuple(gone)
    assert list(dead_letters(runtime, whole=True)) == before
    assert audit(runtime).differences == ()


@pytest.mark.parametrize("kind", ["outcome", "settlement"])
def test_dead_letters_are_not_rebuilt_from_lost_files(sending: Sending, kind: FileKind) -> None:
    """If files are lost, nothing is written, and the error names the files to restore."""
    runtime = sending.begin(2, b"no event", crm="/bad/crm")
    sending.deliver()
    (batch,) = runtime.ledger.batches.find(limit=None)
    lost = [
        str(file.path)
        for each in (kind, "dead_letter")
        for file in runtime.ledger.files.list_for_batch(batch.batch_id, each)
    ]
    for path in lost:
        runtime.store.delete(path)

    with pytest.raises(ReconciliationError, match=f"{lost[0]}.*Restore") as error:
        repair(sending, batch)
    assert "nothing was changed" in str(error.value)
    assert not any(runtime.store.exists(path) for path in [*lost, layout.repair(batch.planned_at, batch.batch_id, 0)])


def test_dead_letters_that_a_redrive_took_are_rebuilt_in_place(sending: Sending) -> None:
    """Even for a batch that is not committed, the redrive continues and takes no dead letter twice."""
    batch = settled(sending)
    runtime = sending.runtime
    sending.rules(good="/healthy/good", bad="/healthy/crm", down=REFUSED)
    router = InProcessRouter(runtime.store)
    request = begin_redrive(runtime, Selection(), "run", rate=None, retransform=False, again=False)
    planned = plan_redrive(runtime, request.redrive_id)
    assert planned.batch_id is not None
    for path in dead_letter_files(runtime):
        runtime.store.delete(path)

    done = repair(sending, batch)
    deliver_redrive(runtime, request.redrive_id, router)

    assert (done.committed, done.set_aside) == (True, ())
    ids = [request["webhook_id"] for request in sending.requests() if request["path"] == "/healthy/crm"]
    assert (len(ids), len(set(ids))) == (4, 4)
    assert audit(runtime).differences == ()


def test_dead_letters_that_come_out_as_others_are_no_repair(sending: Sending) -> None:
    """A settlement that is not what it was is found out by the reconciliation, though it has as many rows."""
    runtime = sending.begin(2, crm="/bad/crm")
    sending.deliver()
    (batch,) = runtime.ledger.batches.find(limit=None)
    (settlement,) = runtime.ledger.files.list_for_batch(batch.batch_id, "settlement")
    rows = read_rows(runtime.store, str(settlement.path), "0,0")
    write_table(runtime.store, str(settlement.path), rows)
    (entries,) = dead_letter_files(runtime)
    runtime.store.delete(entries)

    with pytest.raises(ReconciliationError, match="not reconciled"):
        repair(sending, batch)


def test_an_audit_reports_missing_dead_letters_that_another_batch_took(sending: Sending) -> None:
    """The audit names the batch of the unreadable file, and reports the other batches as usual."""
    runtime = sending.begin(2, crm="/bad/crm")
    sending.deliver()
    sending.rules(crm="/healthy/crm")
    request = begin_redrive(runtime, Selection(), "run", rate=None, retransform=False, again=False)
    deliver_redrive(runtime, request.redrive_id, InProcessRouter(runtime.store))
    redrive, first = (batch.batch_id for batch in runtime.ledger.batches.find(limit=None))
    (entries,) = dead_letter_files(runtime)
    runtime.store.delete(entries)

    found = audit(runtime)

    assert found.batches == 2
    assert any(each.startswith(f"batch {first}: ") and entries in each for each in found.differences)
    assert any(each.startswith(f"batch {redrive}: ") and f"repair {first}" in each for each in found.differences)
