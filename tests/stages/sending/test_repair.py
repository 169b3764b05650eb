"""Repair: a batch that cannot be committed is, and no delivery is dropped."""

from __future__ import annotations

import io
import json
from collections import Counter

import pytest
from pyarrow import parquet
from stages.delivering import REFUSED, RUNNER, RunningClock, Sending, http
from stages.verdict_rows import table_of

from eventbridge.errors import BooksError
from eventbridge.model.batch import Batch, BatchFile, FileKind
from eventbridge.routing.in_process import InProcessRouter
from eventbridge.stages.commit.stage import commit
from eventbridge.stages.letters.files import dead_letter_files
from eventbridge.stages.letters.reader import dead_letters
from eventbridge.stages.letters.selection import Selection
from eventbridge.stages.operate.audit import audit
from eventbridge.stages.operate.deliver_redrive import deliver_redrive
from eventbridge.stages.operate.repair import Repair, repair_batch
from eventbridge.stages.redrive.plan import begin_redrive, plan_redrive
from eventbridge.stages.retry.plan import plan_retries, settle_stale
from eventbridge.stages.settle.letters import write_dead_letters
from eventbridge.stages.settle.settlement import publish_settlement, read_verdicts
from eventbridge.store import layout
from eventbridge.store.parquet import read_rows, read_table, write_table


def repair(sending: Sending, batch: Batch, *, dry_run: bool = False) -> Repair:
    """Repair a batch."""
    return repair_batch(sending.work, batch.batch_id, InProcessRouter(sending.work.store), dry_run=dry_run)


def settled(sending: Sending) -> Batch:
    """Return a settled batch: four deliveries that came, four dead, four parked."""
    batch = sending.routed(4, good="/healthy/good", bad="/bad/crm", down=REFUSED)
    sending.push(batch)
    sending.settle(batch)
    return batch


@pytest.mark.parametrize("kind", ["delivery", "outcome", "settlement", "dead_letter"])
@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_a_file_that_cannot_be_read_is_made_again(sending: Sending, kind: str, damage: str) -> None:
    """Then the batch commits, every delivery is accounted for, and the record in the store names the file."""
    batch = settled(sending)
    work = sending.work
    (file, *_) = [each for each in work.ledger.files(batch.batch_id, kind) if each.path]  # type: ignore[arg-type]
    assert file.path is not None
    whole = work.store.get(file.path)
    work.store.delete(file.path)
    if damage == "damaged":
        work.store.put(file.path, whole[: len(whole) // 2])
    with pytest.raises(BooksError, match="eventbridge batch repair"):
        commit(work, batch.batch_id)

    planned = repair(sending, batch, dry_run=True)
    assert (planned.unreadable, planned.record) == ((file.path,), "")
    assert work.ledger.batch(batch.batch_id).state == "settling"
    done = repair(sending, batch)

    assert done.committed
    assert done.made_again == ((file.path,) if kind in ("delivery", "dead_letter") else ())
    assert json.loads(work.store.get(done.record))["unreadable"] == [file.path]
    assert sum(work.ledger.committed_offsets(RUNNER).values()) == 4
    assert audit(work).differences == ()
    assert not repair(sending, batch).needed
    verdicts = [row.verdict for row in read_verdicts(work, batch.batch_id)]
    assert len(verdicts) == 12
    if kind == "outcome":
        assert done.unproven == verdicts.count("Unknown") > 0
    else:
        assert Counter(verdicts) == {"Delivered": 4, "DeadLettered": 4, "RetryAt": 4}


@pytest.mark.parametrize("damage", ["gone", "damaged"])
@pytest.mark.parametrize("retransform", [False, True])
def test_what_a_redrive_begins_with_is_made_again_from_its_letters(
    sending: Sending, retransform: bool, damage: str
) -> None:
    """Its requests, or its events; who settles says what to do, and then all of it is delivered or parked."""
    sending.begin(3, crm=http(REFUSED, retry="{policy: own, attempts: 0}", ordered_by="$.data.id"))
    sending.deliver()
    sending.publish(2)
    sending.deliver()
    sending.rules(crm=http("/healthy/crm", ordered_by="$.data.id"))
    work = sending.work
    router = InProcessRouter(work.store)
    wish = begin_redrive(work, Selection(), "run", rate=None, retransform=retransform, again=False)
    batch_id = str(plan_redrive(work, wish.redrive_id).batch_id)
    (file,) = work.ledger.files(batch_id, "buffer" if retransform else "delivery")
    whole = work.store.get(str(file.path))
    work.store.delete(str(file.path))
    if damage == "damaged":
        work.store.put(str(file.path), whole[: len(whole) // 2])
    if not retransform:
        with pytest.raises(BooksError, match="eventbridge batch repair"):
            write_dead_letters(work, batch_id)

    planned = repair_batch(work, batch_id, router, dry_run=True)
    done = repair_batch(work, batch_id, router, dry_run=False)

    assert planned.made_again == done.made_again == (file.path,)
    assert read_rows(work.store, str(file.path), "0-4").equals(parquet.read_table(io.BytesIO(whole)))
    deliver_redrive(work, wish.redrive_id, router)
    sending.deliver()
    assert len({request["webhook_id"] for request in sending.requests()}) == len(sending.requests()) == 5
    assert audit(work).differences == ()


@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_dead_letters_of_a_committed_batch_are_made_again(sending: Sending, damage: str) -> None:
    """Row by row as they were: refused and malformed ones, and those of a redrive, with the attempts made before it.

    Until then who looks for dead letters is told which batch to repair.
    """
    work = sending.begin(2, b"no event", 1, crm="/bad/crm", other="/bad/other")
    sending.deliver()
    wish = begin_redrive(work, Selection(target="crm"), "run", rate=None, retransform=False, again=False)
    deliver_redrive(work, wish.redrive_id, InProcessRouter(work.store))
    before = list(dead_letters(work, whole=True))
    assert len(before) == 1 + 2 * 3 + 3  # malformed, refused, and refused again
    assert max(len(each["attempts"]) for each in before) == 2
    paths = dead_letter_files(work)
    for path in paths:
        whole = work.store.get(path)
        work.store.delete(path)
        if damage == "damaged":
            work.store.put(path, whole[: len(whole) // 2])
    broken = {layout.batch_of_dead_letters(path) for path in paths}
    with pytest.raises(BooksError, match="eventbridge batch repair"):
        list(dead_letters(work))

    assert repair(sending, work.ledger.batch(min(broken)), dry_run=True).committed
    done = [repair(sending, work.ledger.batch(each)) for each in sorted(broken)]  # the redrive's after what it took

    assert sorted(path for each in done for path in each.made_again) == sorted(paths)
    assert all(each.committed and work.store.exists(each.record) for each in done)
    assert list(dead_letters(work, whole=True)) == before
    assert audit(work).differences == ()


def test_a_wrong_letter_file_is_made_again_before_commit_and_after(sending: Sending) -> None:
    """One that can be read, but holds another row than was given up, is noticed, and its rows are made again."""
    batch = settled(sending)
    work = sending.work
    (path,) = dead_letter_files(work)
    right = work.store.get(path)

    for state in ("settling", "committed"):
        assert work.ledger.batch(batch.batch_id).state == state
        table = read_table(work.store, path)
        write_table(work.store, path, table.slice(0, 3))
        assert repair(sending, batch, dry_run=True).wrong == (path,)
        assert repair(sending, batch).made_again == (path,)
        assert work.store.get(path) == right

    assert audit(work).differences == ()
    assert not repair(sending, batch).needed


@pytest.mark.parametrize("damage", ["gone", "damaged", "other"])
def test_the_manifest_of_a_committed_batch_is_made_again(sending: Sending, damage: str) -> None:
    """From the batch's files, whose books balance; a record in the store names it, and says if it could be read."""
    batch = settled(sending)
    work = sending.work
    assert commit(work, batch.batch_id)
    path = layout.manifest(batch.planned_at, batch.batch_id)
    right = work.store.get(path)
    if damage == "gone":
        work.store.delete(path)
    else:
        work.store.put(path, right[:-100] if damage == "damaged" else right.replace(b'"valid": 4', b'"valid": 5'))

    assert repair(sending, batch, dry_run=True).made_again == (path,)
    assert len(audit(work).differences) == 1
    done = repair(sending, batch)

    assert (done.wrong, done.unreadable) == (((path,), ()) if damage == "other" else ((), (path,)))
    assert done.committed
    assert json.loads(work.store.get(done.record))["made_again"] == [path]
    assert work.store.get(path) == right
    assert audit(work).differences == ()


def test_books_that_no_file_explains_are_told(sending: Sending) -> None:
    """A settlement that can be read and is wrong: nothing can make it again, and the repair says so."""
    batch = settled(sending)
    work = sending.work
    assert commit(work, batch.batch_id)
    (settlement,) = work.ledger.files(batch.batch_id, "settlement")
    write_table(work.store, str(settlement.path), read_table(work.store, str(settlement.path)).slice(0, 11))

    with pytest.raises(BooksError, match=r"its books do not balance.*copy of the store"):
        repair(sending, batch)


def test_dead_letters_are_made_again_of_deliveries_that_are(sending: Sending) -> None:
    """Both files of a committed batch are gone: first the deliveries are routed again, then their letters written."""
    work = sending.begin(2, crm="/bad/crm")
    sending.deliver()
    (batch,) = work.ledger.batches(limit=None)
    before = list(dead_letters(work, whole=True))
    gone = [str(file.path) for kind in ("delivery", "dead_letter") for file in work.ledger.files(batch.batch_id, kind)]  # type: ignore[arg-type]
    for path in gone:
        work.store.delete(path)

    done = repair(sending, batch)

    assert done.made_again == tuple(gone)
    assert list(dead_letters(work, whole=True)) == before
    assert audit(work).differences == ()


@pytest.mark.parametrize("kind", ["outcome", "settlement", "buffer"])
def test_dead_letters_are_not_made_again_of_what_is_lost(sending: Sending, kind: FileKind) -> None:
    """Then nothing is written, and the files to put back are named."""
    work = sending.begin(2, b"no event", crm="/bad/crm")
    sending.deliver()
    (batch,) = work.ledger.batches(limit=None)
    lost = [str(file.path) for each in (kind, "dead_letter") for file in work.ledger.files(batch.batch_id, each)]
    for path in lost:
        work.store.delete(path)

    with pytest.raises(BooksError, match=f"{lost[0]}.*Put") as error:
        repair(sending, batch)
    assert "nothing was changed" in str(error.value)
    assert not any(work.store.exists(path) for path in [*lost, layout.repair(batch.planned_at, batch.batch_id, 0)])


def test_dead_letters_that_a_redrive_took_are_made_again_where_they_were(sending: Sending) -> None:
    """Also those of a batch that is not committed yet: the redrive goes on, and takes none of them twice."""
    batch = settled(sending)
    work = sending.work
    sending.rules(good="/healthy/good", bad="/healthy/crm", down=REFUSED)
    router = InProcessRouter(work.store)
    wish = begin_redrive(work, Selection(), "run", rate=None, retransform=False, again=False)
    planned = plan_redrive(work, wish.redrive_id)
    assert planned.batch_id is not None
    for path in dead_letter_files(work):
        work.store.delete(path)

    done = repair(sending, batch)
    deliver_redrive(work, wish.redrive_id, router)

    assert (done.committed, done.set_aside) == (True, ())
    ids = [request["webhook_id"] for request in sending.requests() if request["path"] == "/healthy/crm"]
    assert (len(ids), len(set(ids))) == (4, 4)
    assert audit(work).differences == ()


def test_dead_letters_that_come_out_as_others_are_no_repair(sending: Sending) -> None:
    """A settlement that is not what it was is found out by the books, though it has as many rows."""
    work = sending.begin(2, crm="/bad/crm")
    sending.deliver()
    (batch,) = work.ledger.batches(limit=None)
    (settlement,) = work.ledger.files(batch.batch_id, "settlement")
    rows = read_rows(work.store, str(settlement.path), "0,0")
    write_table(work.store, str(settlement.path), rows)
    (letters,) = dead_letter_files(work)
    work.store.delete(letters)

    with pytest.raises(BooksError, match="books do not balance"):
        repair(sending, batch)


def test_who_took_letters_that_are_gone_is_told_by_an_audit_that_goes_on(sending: Sending) -> None:
    """The audit says whose file it is that cannot be read, and of every other batch what it would say anyway."""
    work = sending.begin(2, crm="/bad/crm")
    sending.deliver()
    sending.rules(crm="/healthy/crm")
    wish = begin_redrive(work, Selection(), "run", rate=None, retransform=False, again=False)
    deliver_redrive(work, wish.redrive_id, InProcessRouter(work.store))
    redrive, first = (batch.batch_id for batch in work.ledger.batches(limit=None))
    (letters,) = dead_letter_files(work)
    work.store.delete(letters)

    found = audit(work)

    assert found.batches == 2
    assert any(each.startswith(f"batch {first}: ") and letters in each for each in found.differences)
    assert any(each.startswith(f"batch {redrive}: ") and f"repair {first}" in each for each in found.differences)


def test_a_batch_that_cannot_be_settled_keeps_no_other_from_it(sending: Sending, clock: RunningClock) -> None:
    """Of two retry batches whose runs died one has lost a file: the other one's deliveries are tried again."""
    work = sending.begin(2, settings={"retry_max_per_target": 2}, crm=REFUSED)
    sending.deliver()
    sending.publish(2)
    sending.deliver()
    sending.rules(crm="/healthy/crm")
    clock.advance(2 * 3600)
    broken, sound = (str(plan_retries(work, RUNNER).batch_id) for _ in range(2))
    (chunk,) = work.ledger.chunks(broken)
    for piece in chunk.pieces:
        work.store.delete(piece.file)
    clock.advance(120)

    with pytest.raises(BooksError, match=f"eventbridge batch repair {broken}"):
        settle_stale(work)

    assert [work.ledger.batch(each).state for each in (broken, sound)] == ["settling", "committed"]


def test_a_surplus_is_settled_anew(sending: Sending) -> None:
    """A settlement that names a delivery twice counts no more; the record names the delivery."""
    batch = settled(sending)
    work = sending.work
    (file,) = work.ledger.files(batch.batch_id, "settlement")
    rows = list(read_verdicts(work, batch.batch_id))
    publish_settlement(work, batch, 1, [table_of([rows[0], rows[-1]])], "000000")
    with pytest.raises(BooksError, match="names them twice"):
        commit(work, batch.batch_id)

    done = repair(sending, batch)

    assert (done.committed, len(done.surplus), done.unproven) == (True, 2, 0)
    assert file.path in done.set_aside
    assert work.store.exists(str(file.path))
    assert audit(work).differences == ()


def test_a_segment_that_is_lost_before_the_settlement(sending: Sending) -> None:
    """Its deliveries are Unknown, and delivered by the retries under their ids."""
    batch = sending.routed(4, good="/healthy/good")
    work = sending.work
    sending.push(batch)
    (segment, *_) = work.ledger.files(batch.batch_id, "outcome")
    work.store.delete(str(segment.path))

    done = repair(sending, batch)
    sending.deliver()

    assert done.committed
    ids = [request["webhook_id"] for request in sending.requests()]
    assert (len(ids), len(set(ids))) == (8, 4)
    assert audit(work).differences == ()


def test_what_nothing_can_make_again_is_refused(sending: Sending) -> None:
    """An archive that is gone, and a batch that is history, are left as they are."""
    batch = settled(sending)
    work = sending.work
    (buffer, *_) = [each for each in work.ledger.files(batch.batch_id, "buffer") if each.path]
    whole = work.store.get(str(buffer.path))
    work.store.delete(str(buffer.path))

    with pytest.raises(BooksError, match=str(buffer.path)):
        repair(sending, batch)
    work.store.put(str(buffer.path), whole)
    assert commit(work, batch.batch_id)
    (settlement,) = work.ledger.files(batch.batch_id, "settlement")
    work.store.delete(str(settlement.path))
    with pytest.raises(BooksError, match="committed"):
        repair(sending, batch)


def test_what_another_batch_has_taken_is_waited_for(sending: Sending) -> None:
    """Deliveries that were parked and are under way must not be parked twice."""
    batch = settled(sending)
    work = sending.work
    (settlement,) = work.ledger.files(batch.batch_id, "settlement")
    work.store.delete(str(settlement.path))
    sending.site.clock.advance(5_000)
    assert sending.retry() is not None

    with pytest.raises(BooksError, match="taken by another batch"):
        repair(sending, batch)

    assert work.ledger.files(batch.batch_id, "settlement") == [
        BatchFile(batch.batch_id, "settlement", "000000", settlement.path, 12)
    ]
