"""Returns the values of the overview: its figures, what needs attention, and the lag of each runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastapi import Request

from eventbridge.api.page.chart import counts_chart, latency_chart, sparkline
from eventbridge.api.page.findings import MAX_TARGETS, findings, installation_findings
from eventbridge.api.page.period import ShownPeriod, period_links
from eventbridge.api.page.render import seconds
from eventbridge.api.page.values import rules
from eventbridge.api.payloads import visible_rule_on_hold
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.partitions import PartitionFlow
from eventbridge.views.status import Status, status
from eventbridge.views.timeline import Period, Step, reconciliation_today, timeline, totals

_NEWEST_BATCHES = 5


@dataclass(frozen=True)
class RunnerLag:
    """The lag of a runner on its bus, in events; None if its offsets do not apply to the log, and `gap` says why.

    `drains` says in words when the lag will be zero, and `drains_in` in seconds; None if that is unknown or never.
    `published`, `settled` and `capacity` are in events per second; the last is None if it is unknown.
    """

    runner: str
    bus: str
    lag: int | None
    in_flight: int | None
    available: int | None
    gap: str
    drains: str
    drains_in: float | None = None
    published: float = 0.0
    settled: float = 0.0
    capacity: float | None = None


@dataclass(frozen=True)
class Figure:
    """A number at the top of the overview, with a note and the path of its line, drawn in a colour of the style."""

    label: str
    value: str
    note: str
    line: str
    colour: int


def overview_values(runtime: Runtime, request: Request, shown: ShownPeriod) -> dict[str, Any]:
    """Return the figures and charts of a period, and the status of the installation now."""
    found = status(runtime, batches=_NEWEST_BATCHES)
    found = replace(found, rules_on_hold=tuple(visible_rule_on_hold(request, each) for each in found.rules_on_hold))
    period = shown.times(runtime.clock())
    values: dict[str, Any] = {
        "status": found,
        "findings": findings(found),
        "more_targets": max(0, len(found.targets) - MAX_TARGETS),
        "waiting": runner_lags(found),
        "modes": {each.runner for each in found.streaming},
        "reconciliation": None,
        "figures": [],
        "charts": [],
        "period_links": list(period_links(request)),
    }
    if runtime.owners is not None:  # the stats of a bus, and its reconciliation, cover all its rules
        return values
    values["findings"] += installation_findings(runtime, found)
    recent = timeline(runtime, period)
    charts = [
        counts_chart(recent, "counts", "Throughput"),
        latency_chart(recent, "times", "Publish to delivered"),
    ]
    figures = _figures(runtime, period, recent.steps, found)
    return values | {"reconciliation": reconciliation_today(runtime), "charts": charts, "figures": figures}


def portal_values(runtime: Runtime, request: Request) -> dict[str, Any]:
    """Return what an owner sees first in the portal: its rules and their last hour, and what needs attention."""
    found = status(runtime, batches=0)
    found = replace(found, rules_on_hold=tuple(visible_rule_on_hold(request, each) for each in found.rules_on_hold))
    own = [each for each in findings(found) if each.kind in ("Rule", "Target")]
    return rules(runtime, "", "") | {"findings": own}


def _figures(runtime: Runtime, period: Period, steps: Sequence[Step], found: Status) -> list[Figure]:
    now = totals(runtime, period)
    before = totals(runtime, Period(period.since - (period.until - period.since), period.since))
    ended = now.delivered + now.failed
    pending = sum(each.count for each in found.pending)
    due = min((each.next_due_at for each in found.pending if each.next_due_at), default=None)
    targets = len({(each.rule, each.target) for each in found.pending})
    change = 100 * (now.events - before.events) / before.events if before.events else None
    return [
        Figure(
            "Events received",
            f"{now.events:,.0f}",
            "none in the period before" if change is None else f"{change:+,.1f} % against the period before",
            sparkline([each.events for each in steps]),
            1,
        ),
        Figure(
            "Delivered",
            f"{100 * now.delivered / ended:.2f} %" if ended else "none",
            f"{now.delivered:,.0f} of {_counted(round(ended), 'delivery', 'deliveries')}",
            sparkline([each.delivered for each in steps]),
            2,
        ),
        Figure(
            "Publish to delivered, p99",
            "none" if now.p99_seconds is None else seconds(now.p99_seconds),
            "nothing was delivered" if now.p50_seconds is None else f"p50 {seconds(now.p50_seconds)}",
            sparkline([each.p99_seconds for each in steps]),
            1,
        ),
        Figure(
            "Pending now",
            f"{pending:,}",
            f"for {_counted(targets, 'target', 'targets')}{f', next at {due:%H:%M:%S} UTC' if due else ''}",
            sparkline([each.pending for each in steps]),
            3,
        ),
    ]


def _counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


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
        for each in runner_lags(found)
    ]
    return {"buses": lines, "targets": len(found.targets), "pending": sum(each.count for each in found.pending)}


def runner_lags(current: Status) -> list[RunnerLag]:
    """Return the lag and the flow of each runner on each of its buses."""
    waiting: dict[tuple[str, str], RunnerLag] = {}
    for partition in current.partitions:
        key = partition.runner, partition.bus
        before = waiting.get(key, RunnerLag(*key, 0, 0, 0, "", ""))
        waiting[key] = replace(
            before,
            lag=_sum(before.lag, partition.lag),
            in_flight=_sum(before.in_flight, partition.in_flight),
            available=_sum(before.available, partition.available),
            gap=before.gap or partition.gap,
        )
    flows: dict[tuple[str, str], list[PartitionFlow]] = {key: [] for key in waiting}
    for each in current.flows:
        flows.setdefault((each.runner, each.bus), []).append(each)
    return [_with_flow(each, flows[key]) for key, each in waiting.items()]


def _with_flow(lag: RunnerLag, flows: Sequence[PartitionFlow]) -> RunnerLag:
    """Return a runner's lag with its flow. Its lag is zero when that of its slowest partition is."""
    capacities = [each.capacity for each in flows if each.capacity is not None]
    known = [each.drains_in_seconds for each in flows if each.drains_in_seconds is not None]
    drains_in = None
    if any(each.grows for each in flows):
        drains = "growing"
    elif len(known) < len(flows) or not known:
        drains = "not known yet"
    else:
        drains_in = max(known)
        drains = f"in {seconds(drains_in)}" if drains_in else "up to date"
    return replace(
        lag,
        drains=drains,
        drains_in=drains_in,
        published=sum(each.published for each in flows),
        settled=sum(each.settled for each in flows),
        capacity=sum(capacities) if capacities and len(capacities) == len(flows) else None,
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
