"""Runs and compares backtests for the command line and the DAGs."""

from __future__ import annotations

from dataclasses import dataclass

from eventbridge.backtest.markdown import as_markdown
from eventbridge.backtest.report import BacktestReport, DiffReport, to_json
from eventbridge.backtest.run import ArchivePart, backtest, diff
from eventbridge.control.candidates import read_candidate
from eventbridge.errors import UserError
from eventbridge.routing.job import Router
from eventbridge.runtime.pruned import refuse_pruned
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.time_range import time_range
from eventbridge.store import layout

#: Samples of each kind in a report, by default and at most: a report is read into memory as a whole.
SAMPLES, MOST_SAMPLES = 3, 100


@dataclass(frozen=True)
class BacktestRequest:
    """The part of the archive to use, and the bus if a rule file has rules of several buses.

    Times are ISO 8601, in UTC without an offset, or durations before now; empty `until`: now.
    """

    since: str | None
    until: str | None = None
    bus: str | None = None
    samples: int = SAMPLES


def backtest_rules(
    runtime: Runtime, candidate: str, request: BacktestRequest, router: Router, *, paths: bool = False
) -> BacktestReport:
    """Run a candidate over the archive; `paths` as `read_candidate` has it.

    Raises UserError, with a remedy, for an invalid request.
    """
    part = _part(runtime, request)
    read = read_candidate(runtime, candidate, request.bus, paths=paths)
    refuse_pruned(runtime, read.bus, part.since, part.until)
    return backtest(runtime, read, part, router)


def diff_rules(
    runtime: Runtime, a: str, b: str, request: BacktestRequest, router: Router, *, paths: bool = False
) -> DiffReport:
    """Run two candidates over the archive and compare them; `paths` as above. Raises UserError, with a remedy."""
    part = _part(runtime, request)
    ours, theirs = (read_candidate(runtime, each, request.bus, paths=paths) for each in (a, b))
    if ours.bus != theirs.bus:
        raise UserError(f"{a} is for bus {ours.bus!r} and {b} for {theirs.bus!r}. Compare rules of one bus")
    refuse_pruned(runtime, ours.bus, part.since, part.until)
    return diff(runtime, ours, theirs, part, router)


def keep_report(runtime: Runtime, report: BacktestReport | DiffReport) -> tuple[str, str]:
    """Write a report to the store as JSON and Markdown and return the URIs of both files."""
    found = []
    for suffix, text in (("json", to_json(report) + "\n"), ("md", as_markdown(report))):
        path = layout.backtest_report(report.made_at, report.backtest_id, suffix)
        runtime.store.put(path, text.encode("utf-8", "replace"))
        found.append(f"{runtime.store.uri.rstrip('/')}/{path}")
    return found[0], found[1]


def _part(runtime: Runtime, request: BacktestRequest) -> ArchivePart:
    if not 0 <= request.samples <= MOST_SAMPLES:
        raise UserError(f"cannot keep {request.samples} samples. Give a number from 0 to {MOST_SAMPLES}")
    since, until = time_range(runtime.ledger.now(), request.since, request.until)
    return ArchivePart(since, until, request.samples)
