"""Prunes committed batches that are past their retention, and removes orphaned files, which no ledger row names.

A file is orphaned if its attempt died, was overtaken, or came too late. A day of the store is listed twice: 24 hours
after its end, when all its writers must have ended, and when retention has removed all files with rows. Files of an
uncommitted batch stay; so do those of a repaired batch, whose record names the files that were set aside.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from eventbridge.errors import NotFoundError
from eventbridge.model.batch import Batch, FileKind
from eventbridge.model.redelivery import Replay
from eventbridge.model.storage import STEPS, BatchGroup, BatchPosition, Kept, SweepName
from eventbridge.policy.retention import LEAST_AGE, Retention, keeping, needs_of_requests
from eventbridge.runtime.time_range import day_of
from eventbridge.store import layout
from eventbridge.upkeep.run import RetentionRun, Retentions

#: The part of a batch with which files of each kind are removed.
_REMOVED_WITH: dict[FileKind, Kept] = {
    "delivery": "all",
    "outcome": "all",
    "settlement": "all",
    "buffer": "archive",
    "dead_letter": "dead_letters",
}
_PAGE = 100
_DAY = timedelta(days=1)
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_BATCH_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def prune_batches(run: RetentionRun, retentions: Retentions) -> None:
    """Finish the batches that an earlier run marked, then mark those past their retention and remove their records."""
    pruning = _Pruning(run)
    pruning.finish_marked()
    for kept in STEPS[:-1]:
        for group in run.runtime.ledger.retention.groups(kept):
            retention = retentions.group_retention(kept, group)
            if retention is not None:
                pruning.prune(kept, group, retention)
            if run.is_over():
                return


class _Pruning:
    """Marks batches and removes their records, except those that unfinished replays and redrives still need."""

    def __init__(self, run: RetentionRun) -> None:
        self._run = run
        self._ledger = run.runtime.ledger
        self._repairs = lru_cache(maxsize=2)(self._repairs_of)
        self._read_requests()

    def finish_marked(self) -> None:
        """Remove the records of marked batches, whose run died or is still removing them."""
        while not self._run.is_over() and (marked := self._ledger.retention.unfinished_removals(_PAGE)):
            for batch in marked:
                self._remove_records(batch)
            if self._run.dry_run:  # nothing was removed, so the same batches would be found again
                return

    def prune(self, kept: Kept, group: BatchGroup, retention: Retention) -> None:
        """Mark the batches of a group whose next part is past its retention, and remove that part."""
        for batch in self._expired(kept, group, retention):
            if self._run.is_over():
                return
            needs = [*needs_of_requests(batch, self._replays, self._redrives), *self._ledger.retention.needs(batch)]
            decided = keeping(batch, self._run.now, retention, needs)
            if decided.because:
                self._run.done.kept[decided.because] += 1
            if decided.kept == batch.kept:
                continue
            if not self._run.dry_run and not self._ledger.retention.mark_kept(batch, decided.kept, self._requests):
                self._read_requests()  # the next run decides about this batch again
                continue
            self._remove_records(replace(batch, kept=decided.kept))

    def _expired(self, kept: Kept, group: BatchGroup, retention: Retention) -> Iterator[Batch]:
        before = self._run.now - (retention.deliveries if kept == "all" else retention.ends(kept, "normal"))
        position: BatchPosition | None = None
        while True:
            page = self._ledger.retention.expired(kept, group, before, position, limit=_PAGE)
            yield from page
            if len(page) < _PAGE:
                return
            position = BatchPosition(page[-1].planned_at, page[-1].batch_id)

    def _remove_records(self, batch: Batch) -> None:
        """Remove the pruned files of a batch, then its rows, which lead a later run to the files if this run dies."""
        going = STEPS[STEPS.index(batch.remaining) : STEPS.index(batch.kept)]
        named = [path for kind, path in self._ledger.files.paths(batch.batch_id) if _REMOVED_WITH[kind] in going]
        self._run.remove([*named, *(self._last_files(batch) if "manifest" in going else ())])
        for what in going:
            self._run.done.batches[what] += 1
        if not self._run.dry_run:
            self._run.done.rows += self._ledger.retention.delete_rows(batch)
            self._run.progressed()

    def _last_files(self, batch: Batch) -> Iterator[str]:
        yield layout.manifest(batch.planned_at, batch.batch_id)
        yield from (path for path in self._repairs(layout.repairs_of_day(batch.planned_at)) if batch.batch_id in path)
        if not self._ledger.retention.is_rule_set_named(batch.rule_set, but_by=batch.batch_id):
            yield layout.rule_set(batch.rule_set)

    def _repairs_of(self, day: str) -> list[str]:
        return self._run.runtime.store.list(day)

    def _read_requests(self) -> None:
        self._requests = self._ledger.retention.open_requests()
        self._replays: list[Replay] = [each for each in self._ledger.replays.all() if each.replay_id in self._requests]
        self._redrives = sorted(
            each.redrive_id for each in self._ledger.redrives.all() if each.redrive_id in self._requests
        )


def sweep_lost(run: RetentionRun) -> None:
    """Remove orphaned files of the days that ended more than 24 h ago and were not swept for them yet."""
    _sweep(run, "lost", run.now - LEAST_AGE)


def sweep_expired(run: RetentionRun, retentions: Retentions) -> None:
    """Remove orphaned files of the days of which only manifests, and files that something still needs, remain."""
    _sweep(run, "expired", run.now - retentions.longest_of_files)


def _sweep(run: RetentionRun, name: SweepName, until: datetime) -> None:
    """Sweep the days with batches, one after another; `until` is the latest time at which a swept day may end."""
    day = day_of(run.runtime.ledger.retention.get_swept_through(name) or _EARLIEST)
    while not run.is_over():
        first = run.runtime.ledger.retention.first_batch_at(day)
        if first is None or day_of(first) + _DAY > until:
            return
        day = day_of(first)
        lost = list(_find_lost_files(run, day))
        run.remove(lost)
        run.done.lost_files += len(lost)
        day += _DAY
        if not run.dry_run:
            run.runtime.ledger.retention.move_sweep(name, day)
            run.progressed()


def _find_lost_files(run: RetentionRun, day: datetime) -> Iterator[str]:
    store, ledger = run.runtime.store, run.runtime.ledger
    buses = {group.bus for kept in STEPS for group in ledger.retention.groups(kept)} - {""}
    repaired = _group_by_batch(store.list(layout.repairs_of_day(day)))
    for prefix in layout.folders_of_day(day, sorted(buses)):
        for batch_id, paths in _group_by_batch(store.list(prefix)).items():
            if batch_id not in repaired:
                yield from _unnamed(run, day, batch_id, paths)


def _unnamed(run: RetentionRun, day: datetime, batch_id: str, paths: list[str]) -> Iterable[str]:
    ledger = run.runtime.ledger
    try:
        batch = ledger.batches.get(batch_id)
    except NotFoundError:
        # it was never planned; if there is a manifest, another ledger has the batch, and an audit reports it
        return () if run.runtime.store.exists(layout.manifest(day, batch_id)) else paths
    if batch.state != "committed":
        return ()
    named = {path for _, path in ledger.files.paths(batch_id)}
    return [path for path in paths if path not in named]


def _group_by_batch(paths: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        if (name := _BATCH_ID.search(path)) is not None:
            found[name.group()].append(path)
    return found
