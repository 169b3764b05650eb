"""Estimates how many archived events a replay or a backtest reads, from the ledger and without reading the archive."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.time_range import time_range
from eventbridge.runtime.visibility import check_seen
from eventbridge.views.timeline import MAX_PERIOD, Period, matched_in

#: The maximum number of archive files that an estimate counts: those of a month, at a batch each 150 seconds.
MAX_FILES = 20_000
#: The maximum number of rules whose deliveries an estimate counts.
_MAX_RULES = 20


@dataclass(frozen=True)
class ArchiveEstimate:
    """The number of archived events of a period in `files` files; `is_more` if only MAX_FILES of them were counted.

    `deliveries` is the number of deliveries of the chosen rules and targets that events of the period matched then; it
    is None if no rules are chosen, or too many. The stats of targets are exact to the minute for three hours, then to
    the hour.
    """

    files: int
    events: int
    is_more: bool
    deliveries: int | None


def estimate(
    runtime: Runtime, bus: str, since: str, until: str, rules: Collection[str] = (), targets: Collection[str] = ()
) -> ArchiveEstimate:
    """Return the estimate for a bus and a period as a user wrote it, and for some rules and targets.

    Raises UserError for an invalid time, and for a caller who is limited to owners and names no rules that they may
    see.
    """
    check_seen(runtime, rules)
    period = Period(*time_range(runtime.ledger.now(), since, until))
    counts = runtime.ledger.archive.count_rows(bus, period.since, period.until, MAX_FILES)
    files, events = max(counts, key=lambda each: each[1], default=(0, 0))  # each runner archives every event of the bus
    is_short = 0 < len(rules) <= _MAX_RULES and period.until - period.since <= MAX_PERIOD
    deliveries = sum(matched_in(runtime, rule, period, targets) for rule in set(rules)) if is_short else None
    return ArchiveEstimate(files, events, sum(count for count, _ in counts) >= MAX_FILES, deliveries)
