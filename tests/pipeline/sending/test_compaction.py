"""A day that has ended is compacted into few files, and every reader still finds what it held."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from pipeline.delivering import REFUSED, Sending, http
from pipeline.repairing import repair
from pipeline.sending.test_retention import NO_RETRY, days, delivered, files, replay_of, sound

from eventbridge.control.consecutive_batches import deliver_replay
from eventbridge.errors import StoreFileMissing
from eventbridge.model.batch import Batch
from eventbridge.pipeline.commit.stage import FILE_KINDS
from eventbridge.repair.backup import check_backup
from eventbridge.routing.task import InProcessRouter
from eventbridge.store import layout
from eventbridge.store.compacted import CompactedStore
from eventbridge.store.parquet import read_table
from eventbridge.upkeep.maintain import maintain


def contents(sending: Sending, batch: Batch) -> dict[str, bytes]:
    """Return the bytes of each recorded file of a batch, and of its manifest."""
    runtime = sending.runtime
    named = [path for _, path in runtime.ledger.files.paths(batch.batch_id)]
    return {path: runtime.store.get(path) for path in [*named, layout.manifest(batch.planned_at, batch.batch_id)]}


def compacted_day(sending: Sending, batches: int = 4) -> list[Batch]:
    """Deliver some batches on one day and one on a later day, and compact the first day; return its batches."""
    for _ in range(batches):
        delivered(sending)
        sending.site.clock.advance(60)
    found = [each for each in sending.runtime.ledger.batches.find(limit=None) if each.kind == "normal"]
    days(sending, 3)
    delivered(sending)
    return found


def test_a_compacted_day_has_few_files_with_the_same_content(sending: Sending) -> None:
    """No batch of the day has a file of its own; all bytes and the audit are as before, and a day is compacted once."""
    batches = compacted_day(sending)
    before = {path: data for batch in batches for path, data in contents(sending, batch).items()}
    audited = sound(sending)

    done = maintain(sending.runtime)

    assert done.compacted == len(before)
    assert all(files(sending, batch) == {} for batch in batches), "no batch has a file of its own"
    assert {path: data for batch in batches for path, data in contents(sending, batch).items()} == before
    assert sound(sending) == audited
    assert check_backup(sending.runtime).status == "together"
    assert maintain(sending.runtime).compacted == 0


def test_a_compacted_file_is_a_parquet_file_of_all_rows(sending: Sending) -> None:
    """A larger file is one table, in which each old file has its rows from `first_row`."""
    batches = compacted_day(sending)
    maintain(sending.runtime)
    runtime = sending.runtime

    for kind in FILE_KINDS:
        for batch in batches:
            for file in runtime.ledger.files.list_for_batch(batch.batch_id, kind):
                found = CompactedStore(runtime.store).find(str(file.path))
                assert found is not None
                with runtime.store.open(found.file) as source:
                    whole = pq.read_table(source)
                own = read_table(runtime.store, str(file.path))
                assert whole.slice(found.first_row, len(own)).equals(own.replace_schema_metadata(whole.schema.metadata))


def test_a_replay_reads_a_compacted_day(sending: Sending) -> None:
    """A replay finds all events of a compacted day."""
    compacted_day(sending, batches=2)
    maintain(sending.runtime)
    before = sound(sending).events["from_archive"]

    deliver_replay(sending.runtime, replay_of(sending), InProcessRouter(sending.runtime.store))

    assert sound(sending).events["from_archive"] - before == 6, "two events of each batch, also of the latest"


def test_files_of_pending_deliveries_are_not_compacted(sending: Sending) -> None:
    """The files that pending rows name stay, while others of the day are compacted."""
    policy = (
        "{policy: custom, max_retries: 50, initial_delay: 1h, multiplier: 1, max_delay: 1h, maximum_event_age: 20d}"
    )
    for _ in range(2):
        delivered(sending, crm=http(REFUSED, retry=policy), dead=http(REFUSED, retry=NO_RETRY))
    days(sending, 3)
    delivered(sending, crm=http(REFUSED, retry=policy))
    in_use = sending.runtime.ledger.retention.files_in_use()

    done = maintain(sending.runtime)

    assert done.compacted > 0
    assert in_use <= set(sending.runtime.store.list("deliveries/"))
    assert sound(sending).differences == ()


def test_files_of_a_repaired_batch_are_not_compacted(sending: Sending) -> None:
    """A repair that goes on during the compaction writes its files again, so they are not deleted."""
    first, *others = compacted_day(sending)
    dead = next(path for path in contents(sending, first) if path.startswith("dead_letters/"))
    sending.runtime.store.put(dead, b"damaged")
    assert repair(sending, first).committed
    before = files(sending, first)

    maintain(sending.runtime)

    assert files(sending, first) == before
    assert all(files(sending, batch) == {} for batch in others)
    assert sound(sending).differences == ()


def test_retention_removes_compacted_files_when_no_batch_needs_them(sending: Sending) -> None:
    """Deliveries and archive go after 30 days; dead letters and manifests stay, and can be read."""
    batches = compacted_day(sending)
    maintain(sending.runtime)
    audited, old = sound(sending).events, contents(sending, batches[0])

    days(sending, 31)
    maintain(sending.runtime)

    assert {path.partition("/")[0] for path in old if sending.runtime.store.exists(path)} == {
        "dead_letters",
        "manifests",
    }
    with pytest.raises(StoreFileMissing):
        sending.runtime.store.get(next(path for path in old if path.startswith("buffer/")))
    remaining = {path.split("/")[1] for path in sending.runtime.store.list(layout.COMPACTED)}
    assert remaining == {"dead_letters", "manifests", "lists"}
    assert sound(sending).events == audited
