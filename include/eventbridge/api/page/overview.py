"""Returns the values of the overview: the status of the installation, its throughput, and the lag of its runners."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from fastapi import Request

from eventbridge.api.page.chart import counts_chart, latency_chart
from eventbridge.api.payloads import visible_rule_on_hold
from eventbridge.dead_letters.reader import dead_letter_page
from eventbridge.dead_letters.selection import Selection
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.status import Status, status
from eventbridge.views.timeline import Span, reconciliation_today, timeline

_NEWEST_BATCHES = 10
#: The maximum number of unhealthy targets, and of groups of pending deliveries, on the overview.
_OVERVIEW_ROWS = 20
#: The maximum number of dead letters that the overview counts by reason, and of files that it reads for this.
_NEWEST_DEAD_LETTERS, _DEAD_LETTER_FILES = 200, 10


@dataclass(frozen=True)
class RunnerLag:
    """The lag of a runner on its bus, in events; None if its offsets do not apply to the log, and `gap` says why."""

    runner: str
    bus: str
    lag: int | None
    in_flight: int | None
    available: int | None
    gap: str
    drains: str


def overview_values(runtime: Runtime, request: Request, span: Span) -> dict[str, Any]:
    """Return the status of the installation, and its throughput in the last hour or day."""
    found = status(runtime, batches=_NEWEST_BATCHES)
    found = replace(found, rules_on_hold=tuple(visible_rule_on_hold(request, each) for each in found.rules_on_hold))
    values: dict[str, Any] = {
        "status": found,
        "waiting": _runner_lags(found),
        "reconciliation": None,
        "charts": [],
        "span": span,
    }
    # the largest groups first; the page of targets shows the others
    values["pending"] = sorted(found.pending, key=lambda each: -each.count)[:_OVERVIEW_ROWS]
    values |= {"unhealthy": found.targets[:_OVERVIEW_ROWS], "dead": _newest_reasons(runtime)}
    if runtime.owners is not None:  # the stats of a bus, and its reconciliation, cover all its rules
        return values
    recent = timeline(runtime, span)
    charts = [
        counts_chart(recent, "counts", "Events and deliveries"),
        latency_chart(recent, "times", "Publish-to-delivery latency"),
    ]
    return values | {"reconciliation": reconciliation_today(runtime), "charts": charts}


def _newest_reasons(runtime: Runtime) -> list[tuple[str, int]]:
    """Return how many of the newest dead letters have each reason, the most frequent reason first."""
    newest = dead_letter_page(runtime, Selection(), _NEWEST_DEAD_LETTERS, damaged={}, max_files=_DEAD_LETTER_FILES)
    return Counter(str(each.record["reason"]) for each in newest.dead_letters).most_common()


def lag_values(runtime: Runtime) -> dict[str, Any]:
    """Return the data of the panel on Airflow's home page.

    These are the lag, in-flight and available events of each bus and runner, and the numbers of unhealthy targets and
    of pending deliveries.
    """
    found = status(runtime, batches=0)
    lines = [
        {
            "bus": each.bus if each.runner == each.bus else f"{each.bus} ({each.runner})",
            "lag": each.lag,
            "in_flight": each.in_flight,
            "available": each.available,
        }
        for each in _runner_lags(found)
    ]
    return {"buses": lines, "targets": len(found.targets), "pending": sum(each.count for each in found.pending)}


def _runner_lags(current: Status) -> list[RunnerLag]:
    waiting: dict[tuple[str, str], RunnerLag] = {}
    for partition in current.partitions:
        key = partition.runner, partition.bus
        before = waiting.get(key, RunnerLag(*key, 0, 0, 0, "", _catch_up_text(current, *key)))
        waiting[key] = RunnerLag(
            *key,
            _sum(before.lag, partition.lag),
            _sum(before.in_flight, partition.in_flight),
            _sum(before.available, partition.available),
            before.gap or partition.gap,
            before.drains,
        )
    return list(waiting.values())


def _catch_up_text(current: Status, runner: str, bus: str) -> str:
    """Return, as text, when the lag of a runner will be zero, which depends on its slowest partition."""
    flows = [each for each in current.flows if (each.runner, each.bus) == (runner, bus)]
    if any(each.grows for each in flows):
        return "growing"
    known = [each.drains_in_seconds for each in flows if each.drains_in_seconds is not None]
    if len(known) < len(flows) or not known:
        return "not known yet"
    longest = max(known)
    return f"in {longest:,.0f} s" if longest else "no lag"


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
