"""Defines the command `stats`, which shows the cost of each rule by day."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.output import JsonOption, print_line, show_document, show_table
from eventbridge.cli.runtime import open_runtime

if TYPE_CHECKING:
    from eventbridge.views.stats import Stats


def stats(
    days: Annotated[
        int, typer.Option("--days", min=1, max=800, metavar="N", help="Number of days, including today.")
    ] = 7,
    rule: Annotated[str | None, typer.Option("--rule", metavar="RULE", help="Only this rule.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the table of rules as CSV, for a spreadsheet.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the cost of each rule, by day in UTC: deliveries, payload bytes, CPU time of routing and pushing.

    Each commit of a batch updates the stats, and pruning the batch later does not change them.
    """
    from eventbridge.views.stats import daily_stats, stats_document

    if as_csv and as_json:
        raise typer.BadParameter("give --csv or --json, not both", param_hint="--csv")
    with open_runtime(expects_ledger=True) as runtime:
        found = daily_stats(runtime, days, rule)
    if as_json:
        show_document(stats_document(found))
    elif as_csv:
        _show_csv(found)
    else:
        _show(found)


def _show(report: Stats) -> None:
    rows = [
        [
            f"{each.day:%Y-%m-%d}",
            each.rule,
            *(each.matched, each.delivered, each.pending, each.dead_lettered, each.size),
            f"{each.cpu_seconds:,.3f}",
            None if each.mean_seconds is None else f"{each.mean_seconds:,.1f}",
        ]
        for each in report.rules
    ]
    columns = ["day", "rule", "matched", "delivered", "pending", "dead-lettered", "bytes", "CPU s", "mean latency s"]
    show_table("Rules", columns, rows)
    print_line()
    events = [
        [
            f"{each.day:%Y-%m-%d}",
            each.bus,
            each.valid,
            each.duplicate,
            each.malformed,
            each.tombstone,
            each.gap,
            each.size,
        ]
        for each in report.buses
    ]
    show_table(
        "Events landed", ["day", "bus", "valid", "duplicate", "malformed", "tombstones", "gaps", "bytes"], events
    )


def _show_csv(report: Stats) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            "day",
            "bus",
            "rule",
            "matched",
            "delivered",
            "pending",
            "dead_lettered",
            "bytes",
            "cpu_seconds",
            "mean_seconds",
        ]
    )
    for each in report.rules:
        counts = [each.matched, each.delivered, each.pending, each.dead_lettered, each.size]
        mean = "" if each.mean_seconds is None else f"{each.mean_seconds:.3f}"
        writer.writerow([f"{each.day:%Y-%m-%d}", each.bus, each.rule, *counts, f"{each.cpu_seconds:.6f}", mean])
    print_line(text.getvalue().rstrip("\n"))
