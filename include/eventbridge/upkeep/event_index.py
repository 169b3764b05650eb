"""Maintains the index of event ids, with which `eventbridge events why` finds an event among the events of a month.

It is derived from the archive: a run adds batches committed since the last run, joins the files of a complete day,
rebuilds lost or damaged files, and removes files of removed events. Batches that are not indexed yet are searched by
`why` itself, so a run may die at any point.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from eventbridge.errors import StoreFileDamaged, StoreFileMissing
from eventbridge.event.ids import batch_time, new_batch_id
from eventbridge.model.batch import Batch
from eventbridge.model.storage import IndexFile
from eventbridge.policy.retention import LEAST_AGE
from eventbridge.runtime.time_range import day_of
from eventbridge.store import layout
from eventbridge.store.event_index import Index, index_of, merge_indexes, read_index, write_index
from eventbridge.upkeep.run import RetentionRun

log = logging.getLogger(__name__)

_DAY = timedelta(days=1)
#: The maximum number of batches to index in one file; if a run dies, this much work is repeated.
_BATCHES = 500
#: The maximum number of index files of an incomplete day. More are joined, because every search reads each of them.
_MAX_FILES = 32


def index_events(run: RetentionRun) -> None:
    """Update the index until the run's time is over; a dry run changes nothing."""
    if run.dry_run:
        return
    _forget_lost(run)
    _remove_old(run)
    _add(run)
    _join(run)


def _forget_lost(run: RetentionRun) -> None:
    """Drop the index of each day that lacks an index file, and remove unrecorded files once their writers must have
    ended."""
    ledger, store = run.runtime.ledger, run.runtime.store
    there = set(store.list(layout.event_indexes()))
    recorded: set[str] = set()
    for file in ledger.event_index.files():
        both = {file.path, layout.indexed_files(file.path)}
        recorded |= both
        if not both <= there:
            _forget(run, file, "is missing")
    stray = [path for path in sorted(there - recorded) if _creation_time(path) < run.now - LEAST_AGE]
    run.remove(stray)
    run.done.lost_files += len(stray)


def _forget(run: RetentionRun, file: IndexFile, reason: str) -> None:
    log.warning("%s of the index of event ids %s: that day will be indexed again", file.path, reason)
    run.runtime.ledger.event_index.forget_day(file.day)


def _creation_time(path: str) -> datetime:
    return batch_time(path.rpartition("/")[2].removesuffix(".parquet").removesuffix("-files"))


def _remove_old(run: RetentionRun) -> None:
    """Remove the index files of days that have no archived events left."""
    for day, files in groupby(
        run.runtime.ledger.event_index.files(until=run.now - LEAST_AGE), key=lambda each: each.day
    ):
        if not run.runtime.ledger.archive.has_any(day, day + _DAY):
            run.runtime.ledger.event_index.drop_day(day)
            run.remove([path for each in files for path in (each.path, layout.indexed_files(each.path))])


def _add(run: RetentionRun) -> None:
    """Index committed batches in groups of one day each; unreadable batches are skipped."""
    damaged: set[str] = set()
    while batches := _unindexed(run, damaged):
        day = day_of(batches[0].planned_at)
        some = [each for each in batches if day_of(each.planned_at) == day]
        index = _index(run, some)
        if index is None:
            damaged |= {each.batch_id for each in some if _index(run, [each]) is None}
            continue
        if not _publish(run, day, index, some, ()):
            return  # another run is indexing the same batches
        run.progressed()
        if run.is_over():
            return


def _unindexed(run: RetentionRun, damaged: Collection[str]) -> list[Batch]:
    found = run.runtime.ledger.event_index.batches_to_index(_BATCHES + len(damaged))
    return [each for each in found if each.batch_id not in damaged]


def _index(run: RetentionRun, batches: Sequence[Batch]) -> Index | None:
    """Return the index of batches, or None if one of their files cannot be read."""
    try:
        return index_of(run.runtime.store, run.runtime.ledger.archive.files_of([each.batch_id for each in batches]))
    except (StoreFileMissing, StoreFileDamaged) as error:
        log.warning("events are not indexed, and `why` searches the archive for them: %s", error)
        return None


def _join(run: RetentionRun) -> None:
    """Join the files of each complete day, and of each incomplete day that has too many files."""
    for day, group in groupby(run.runtime.ledger.event_index.files(), key=lambda each: each.day):
        files = list(group)
        if len(files) < 2 or (len(files) <= _MAX_FILES and day + _DAY > run.now):
            continue
        if run.is_over():
            return
        indexes = []
        for file in files:
            try:
                indexes.append(read_index(run.runtime.store, file.path))
            except (StoreFileMissing, StoreFileDamaged):
                _forget(run, file, "cannot be read")
                break
        if len(indexes) == len(files) and _publish(run, day, merge_indexes(indexes), (), files):
            run.remove([path for each in files for path in (each.path, layout.indexed_files(each.path))])
            run.progressed()


def _publish(
    run: RetentionRun, day: datetime, index: Index, batches: Sequence[Batch], instead_of: Sequence[IndexFile]
) -> bool:
    path = layout.event_index(day, new_batch_id(run.now))
    write_index(run.runtime.store, path, index)
    file = IndexFile(path, day, index.rows.num_rows)
    return run.runtime.ledger.event_index.publish(file, [each.batch_id for each in batches], instead_of)
