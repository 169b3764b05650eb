"""Defines the commands `rules backtest` and `rules diff`, which run and compare candidate rules over the archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.deliver import spark_url
from eventbridge.cli.options import LandedBefore, LandedSince
from eventbridge.cli.output import JsonOption, note, plural, print_line, show_document, show_table, show_text
from eventbridge.cli.progress import log_warnings, shown_progress
from eventbridge.cli.runtime import open_runtime

if TYPE_CHECKING:
    from eventbridge.backtest.report import BacktestReport, DiffReport, RuleReport
    from eventbridge.control.backtest import BacktestRequest
    from eventbridge.model.backtested import EventSample, Output
    from eventbridge.routing.job import RouteJob, Router, SliceResult, Task
    from eventbridge.runtime.runtime import Runtime

_CANDIDATE = (
    "A current rule, a former version as RULE@VERSION, or all rules of a file, given as a path ending in .yaml."
)


@dataclass(frozen=True)
class ArchiveOptions:
    """Options that select a part of the archive, and the number of samples."""

    since: LandedSince
    until: LandedBefore = None
    bus: Annotated[
        str | None,
        typer.Option(metavar="BUS", help="Only rules of this bus; required for a file with rules of several buses."),
    ] = None
    samples: Annotated[
        int,
        typer.Option(
            "--sample", min=0, max=100, metavar="N", help="Maximum number of samples of each kind in the report."
        ),
    ] = 3

    def request(self) -> BacktestRequest:
        """Return the options as a request."""
        from eventbridge.control.backtest import BacktestRequest

        return BacktestRequest(**vars(self))


KeepOption = Annotated[
    bool, typer.Option("--keep", help="Keep the report in the store, as JSON and Markdown, and print its addresses.")
]
SparkOption = Annotated[
    str | None, typer.Option("--spark", metavar="URL", help="Spark Connect server, as for `deliver`.")
]


def backtest(
    candidate: Annotated[str, typer.Argument(metavar="CANDIDATE", help=_CANDIDATE)],
    part: ArchiveOptions,
    keep: KeepOption = False,
    spark: SparkOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a rule over archived events on Spark; report what it matches and what its targets would receive.

    Nothing is delivered. A disabled rule runs as if it were enabled.
    """
    from eventbridge.backtest.report import to_json
    from eventbridge.control.backtest import backtest_rules, keep_report
    from eventbridge.event.json_document import parse_document

    with _open_runtime(spark, keep=keep) as (runtime, router):
        with shown_progress("backtesting", "archived events") as progress:
            report = backtest_rules(runtime, candidate, part.request(), router, paths=True, progress=progress)
        kept = keep_report(runtime, report) if keep else ()
    if as_json:
        show_document(parse_document(to_json(report)))
    else:
        _show_backtest(report)
    _note_kept(kept)


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=_CANDIDATE)],
    b: Annotated[str, typer.Argument(metavar="B", help="The candidate to compare with A.")],
    part: ArchiveOptions,
    keep: KeepOption = False,
    spark: SparkOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run two candidates over archived events on Spark and report how B differs from A.

    Rules of the same name are compared; if A and B have one rule each, those two are. Nothing is delivered.
    """
    from eventbridge.backtest.report import to_json
    from eventbridge.control.backtest import diff_rules, keep_report
    from eventbridge.event.json_document import parse_document

    with _open_runtime(spark, keep=keep) as (runtime, router):
        with shown_progress("comparing", "archived events") as progress:
            report = diff_rules(runtime, a, b, part.request(), router, paths=True, progress=progress)
        kept = keep_report(runtime, report) if keep else ()
    if as_json:
        show_document(parse_document(to_json(report)))
    else:
        _show_diff(report)
    _note_kept(kept)


@contextmanager
def _open_runtime(spark: str | None, *, keep: bool) -> Iterator[tuple[Runtime, Router]]:
    from eventbridge.spark.route import ConnectRouter

    log_warnings()
    with open_runtime(expects_ledger=True, writes=keep) as runtime, ExitStack() as stack:
        yield (
            runtime,
            _LazyRouter(lambda: ConnectRouter(spark_url(runtime.settings, spark, stack), store=runtime.store)),
        )


class _LazyRouter:
    """A router that is opened at the first call, so that errors in the request are reported before Spark starts."""

    def __init__(self, open_router: Callable[[], Router]) -> None:
        self._open = open_router
        self._router: Router | None = None

    def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        """Route the slices; open the router if this is the first call."""
        if self._router is None:
            self._router = self._open()
        return self._router.route_slices(job, tasks)


def _show_backtest(report: BacktestReport) -> None:
    print_line(f"{plural(report.events, 'archived event', 'archived events')} of bus {report.bus} read")
    show_table(
        "Would be delivered, times in UTC",
        ["rule/target", "matched", "failed", "per second", "largest minute", "matched in that minute", "left out"],
        [
            [
                f"{rule.rule}/{target.target}",
                rule.matched,
                target.failed,
                f"{rule.rate_per_second:.3f}",
                None if rule.largest_minute is None else rule.largest_minute.at,
                None if rule.largest_minute is None else rule.largest_minute.matched,
                rule.left_out,
            ]
            for rule in report.rules
            for target in rule.targets
        ],
    )
    for rule in report.rules:
        _show_rule(rule)


def _show_rule(rule: RuleReport) -> None:
    if rule.left_out:
        note(f"{plural(rule.left_out, 'event', 'events')} of {rule.rule} left out: {rule.left_out_why}")
    if rule.matched:
        hours = [[each.at, each.landed, each.matched] for each in rule.hours]
        show_table(f"{rule.rule} by hour, in UTC", ["hour", "landed", "matched"], hours)
    for target in rule.targets:
        if target.failures:
            show_table(
                f"{rule.rule}/{target.target} failed",
                ["error", "events", "first ones"],
                [[each.text or "(others)", each.count, ", ".join(each.event_ids)] for each in target.failures],
            )
        for sample in target.samples:
            _show_output(f"{rule.rule}/{target.target} of event {sample.of.event_id}", sample.output)


def _show_diff(report: DiffReport) -> None:
    print_line(f"{plural(report.events, 'archived event', 'archived events')} of bus {report.bus} read")
    show_table(
        f"{report.b} (B) compared with {report.a} (A)",
        ["A", "B", "both", "gained", "lost", "changed outputs", "left out"],
        [
            [
                f"{pair.a} {pair.a_version}",
                f"{pair.b} {pair.b_version}",
                pair.both,
                pair.gained,
                pair.lost,
                ", ".join(
                    f"{each.target} only in {each.only_in}" if each.only_in else f"{each.target} {each.changed:,}"
                    for each in pair.targets
                ),
                pair.left_out,
            ]
            for pair in report.pairs
        ],
    )
    for side, names in (("A", report.only_in_a), ("B", report.only_in_b)):
        if names:
            note(f"rules only in {side}, not compared: {', '.join(names)}")
    for pair in report.pairs:
        if pair.left_out:
            note(f"{plural(pair.left_out, 'event', 'events')} of {pair.a} left out: {pair.left_out_why}")
        _show_events(f"gained by {pair.b}", pair.gained_samples)
        _show_events(f"lost by {pair.b}", pair.lost_samples)
        for target in pair.targets:
            for change in target.samples:
                what = f"{pair.b}/{target.target} of event {change.of.event_id}"
                _show_output(f"{what}, output of A", change.a)
                _show_output(f"{what}, output of B", change.b)


def _show_events(title: str, samples: tuple[EventSample, ...]) -> None:
    for sample in samples:
        show_text(f"{title}: event {sample.event_id}", sample.event + ("…" if sample.cut else ""))


def _show_output(title: str, output: Output) -> None:
    if output.failure is not None:
        show_text(f"{title} failed", output.failure)
        return
    kind = "base64 of " if output.is_base64 else ""
    headers = f", headers {output.headers}" if output.headers else ""
    text = (output.payload or "") + ("…" if output.cut else "")
    show_text(f"{title}: {kind}{output.content_type or 'no media type'}{headers}", text)


def _note_kept(uris: tuple[str, ...]) -> None:
    for uri in uris:
        note(f"report: {uri}")
