"""Removes lost files, which no ledger row names: their attempts died, were overtaken, or came too late.

A day of the store is listed twice: two days later, when all its writers must have ended, and when retention has removed
all files with rows. Files of an uncommitted batch stay; so do those of a repaired batch, whose record names the files
that were set aside.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from eventbridge.errors import NotFoundError
from eventbridge.model.storage import STEPS, SweepName
from eventbridge.policy.retention import LEAST_AGE
from eventbridge.store import layout
from eventbridge.upkeep.retentions import Retentions
from eventbridge.upkeep.run import Run

_DAY = timedelta(days=1)
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_BATCH_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def sweep_lost(run: Run) -> None:
    """Sweep the days that ended more than 24 h ago and were not swept yet."""
    _sweep(run, "lost", run.now - LEAST_AGE)


def sweep_expired(run: Run, retentions: Retentions) -> None:
    """Sweep the days of which only manifests, and files with a need, are kept."""
    _sweep(run, "expired", run.now - retentions.longest_of_files)


def _sweep(run: Run, name: SweepName, until: datetime) -> None:
    """Sweep the days with batches, one after the other; `until`: the end of the last one."""
    day = _day_of(run.runtime.ledger.swept_through(name) or _EARLIEST)
    while not run.is_over():
        first = run.runtime.ledger.first_batch_at(day)
        if first is None or _day_of(first) + _DAY > until:
            return
        day = _day_of(first)
        lost = list(_lost_files(run, day))
        run.remove(lost)
        run.done.lost_files += len(lost)
        day += _DAY
        if not run.dry_run:
            run.runtime.ledger.move_sweep(name, day)
            run.progressed()


def _day_of(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _lost_files(run: Run, day: datetime) -> Iterator[str]:
    store, ledger = run.runtime.store, run.runtime.ledger
    buses = {group.bus for kept in STEPS for group in ledger.batch_groups(kept)} - {""}
    repaired = _by_batch(store.list(layout.repairs_of_day(day)))
    for prefix in layout.folders_of_day(day, sorted(buses)):
        for batch_id, paths in _by_batch(store.list(prefix)).items():
            if batch_id not in repaired:
                yield from _unnamed(run, day, batch_id, paths)


def _unnamed(run: Run, day: datetime, batch_id: str, paths: list[str]) -> Iterable[str]:
    ledger = run.runtime.ledger
    try:
        batch = ledger.batch(batch_id)
    except NotFoundError:
        # it was never planned; if there is a manifest, another ledger has the batch, and an audit reports it
        return () if run.runtime.store.exists(layout.manifest(day, batch_id)) else paths
    if batch.state != "committed":
        return ()
    named = {path for _, path in ledger.paths(batch_id)}
    return [path for path in paths if path not in named]


def _by_batch(paths: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        if (name := _BATCH_ID.search(path)) is not None:
            found[name.group()].append(path)
    return found
