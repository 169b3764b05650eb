"""Writes reports of backtests as Markdown, for people to read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from eventbridge.backtest.report import BacktestReport, DiffReport, PairReport, RuleReport
from eventbridge.model.backtested import Change, EventSample, Output, OutputSample


def as_markdown(report: BacktestReport | DiffReport) -> str:
    """Return a report as a page in Markdown."""
    lines = _backtest(report) if isinstance(report, BacktestReport) else _diff(report)
    return "\n".join(lines) + "\n"


def _backtest(report: BacktestReport) -> Iterator[str]:
    yield f"# Backtest of {report.candidate}"
    yield ""
    yield from _head(report)
    columns = ["rule/target", "matched", "failed", "per second", "largest minute", "matched in that minute", "left out"]
    rows = [
        [
            f"{rule.rule}/{target.target}",
            rule.matched,
            target.failed,
            f"{rule.rate_per_second:.3f}",
            "" if rule.largest_minute is None else _time(rule.largest_minute.at),
            "" if rule.largest_minute is None else rule.largest_minute.matched,
            rule.left_out,
        ]
        for rule in report.rules
        for target in rule.targets
    ]
    yield from _table(columns, rows)
    for rule in report.rules:
        yield from _rule(rule)


def _rule(rule: RuleReport) -> Iterator[str]:
    yield ""
    yield f"## {rule.rule} (version {rule.version})"
    if rule.left_out:
        yield ""
        yield f"Events that its pattern matches but that were left out: {rule.left_out:,}. Reason: {rule.left_out_why}."
    yield ""
    yield from _table(
        ["hour", "landed", "matched"], [[_time(each.at), each.landed, each.matched] for each in rule.hours]
    )
    for target in rule.targets:
        if target.failures:
            yield ""
            yield f"### Failures for {target.target}"
            yield ""
            rows = [[each.text or "(others)", each.count, ", ".join(each.event_ids)] for each in target.failures]
            yield from _table(["error", "events", "first ones"], rows)
        if target.samples:
            yield ""
            yield f"### Samples for {target.target}"
            for sample in target.samples:
                yield from _output_sample(sample)


def _diff(report: DiffReport) -> Iterator[str]:
    yield f"# {report.b} compared with {report.a}"
    yield ""
    yield from _head(report)
    columns = ["A", "B", "both match", "gained by B", "lost by B", "changed outputs", "left out"]
    rows = [
        [
            f"{pair.a} {pair.a_version}",
            f"{pair.b} {pair.b_version}",
            pair.both,
            pair.gained,
            pair.lost,
            ", ".join(f"{target.target}: {_format_change(target.only_in, target.changed)}" for target in pair.targets),
            pair.left_out,
        ]
        for pair in report.pairs
    ]
    yield from _table(columns, rows)
    for side, names in (("A", report.only_in_a), ("B", report.only_in_b)):
        if names:
            yield ""
            yield f"Rules only in {side}, not compared: {', '.join(names)}."
    for pair in report.pairs:
        yield from _pair(pair)


def _format_change(only_in: str, changed: int) -> str:
    return f"only in {only_in}" if only_in else f"{changed:,}"


def _pair(pair: PairReport) -> Iterator[str]:
    if pair.left_out:
        yield ""
        yield f"Events of {pair.a} that were left out: {pair.left_out:,}. Reason: {pair.left_out_why}."
    for title, samples in (("Gained", pair.gained_samples), ("Lost", pair.lost_samples)):
        if samples:
            yield ""
            yield f"## {title} by {pair.b}"
            for sample in samples:
                yield from _event(sample)
    for target in pair.targets:
        if target.samples:
            yield ""
            yield f"## Changed for {pair.b}/{target.target}"
            for change in target.samples:
                yield from _change(change)


def _change(change: Change) -> Iterator[str]:
    yield from _event(change.of)
    yield from _output("Output of A", change.a)
    yield from _output("Output of B", change.b)


def _output_sample(sample: OutputSample) -> Iterator[str]:
    yield from _event(sample.of)
    yield from _output("Output", sample.output)


def _event(sample: EventSample) -> Iterator[str]:
    yield ""
    yield f"Event {_code(sample.event_id)} of {_code(sample.source)}, row {sample.row} of {_code(sample.file)}:"
    yield from _block(sample.event, cut=sample.cut)


def _output(title: str, output: Output) -> Iterator[str]:
    yield ""
    if output.failure is not None:
        yield f"{title} failed: {_line(output.failure)}"
        return
    headers = f", headers {_code(output.headers)}" if output.headers else ""
    kind = ", as base64" if output.is_base64 else ""
    yield f"{title}, {output.content_type or 'no media type'}{headers}{kind}:"
    yield from _block(output.payload or "", cut=output.cut)


def _block(text: str, *, cut: bool) -> Iterator[str]:
    """Yield text unchanged, between fences that it does not contain."""
    fence = "```"
    while fence in text:
        fence += "`"
    yield ""
    yield fence
    yield from text.split("\n")
    yield fence
    if cut:
        yield ""
        yield "(truncated)"


def _head(report: BacktestReport | DiffReport) -> Iterator[str]:
    yield (
        f"Events of bus {report.bus}: {report.events:,}, from batches planned between {_time(report.since)} "
        f"and {_time(report.until)} UTC. Archive files: {report.files:,}. Created at {_time(report.made_at)} UTC."
    )
    yield ""


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield _row(columns)
    yield _row(["---"] * len(columns))
    for row in rows:
        yield _row([f"{cell:,}" if isinstance(cell, int) else _line(str(cell)) for cell in row])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _line(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _code(text: str) -> str:
    return f"`` {_line(text)} ``" if "`" in text else f"`{_line(text)}`"


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"
