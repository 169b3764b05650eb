"""Defines the command `sql`, which runs a query over events, deliveries, attempts, dead letters and batches."""

from __future__ import annotations

import csv
import io
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventbridge.cli.options import refuse_empty
from eventbridge.cli.output import JsonOption, note, plural, print_line, show_columns, show_document, warn
from eventbridge.cli.progress import shown_progress
from eventbridge.cli.runtime import open_runtime

if TYPE_CHECKING:
    from eventbridge.views.sql import ResultColumn, SqlResult

_FOUND_UNREADABLE = 1


def sql(
    query: Annotated[
        str,
        typer.Argument(metavar="QUERY", help="One SELECT statement in DuckDB's SQL; - reads it from standard input."),
    ],
    since: Annotated[
        str, typer.Option("--from", metavar="TIME", help="Rows since TIME: RFC 3339, or an age such as 2h or 7d.")
    ] = "24h",
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Rows before TIME; default: now.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, metavar="N", help="Maximum number of rows.")] = 1_000,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the rows as CSV, for a spreadsheet.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a query over the tables events, deliveries, attempts, dead_letters and batches of a time range.

    Only the files of the range are read, and only the tables and columns that the query names. Nothing is changed, and
    the query reaches no file and no network. `eventbridge sql "DESCRIBE events"` shows the columns of a table.
    """
    from eventbridge.runtime.time_range import time_range
    from eventbridge.views.sql import MAX_QUERY, run_sql

    if as_csv and as_json:
        raise typer.BadParameter("give --csv or --json, not both", param_hint="--csv")
    refuse_empty({"from": since, "to": until})
    # A longer one is refused; spaces around a query do not count, so a few more are read.
    text = sys.stdin.read(2 * MAX_QUERY) if query == "-" else query
    with open_runtime(expects_ledger=True) as runtime:
        period = time_range(runtime.clock(), since, until)
        with shown_progress("reading", "files") as progress:
            result = run_sql(runtime, text, *period, limit, progress)
    if as_json:
        show_document(_documents(result))
    elif as_csv:
        _show_csv(result)
    else:
        numeric = [each.kind == "number" for each in result.columns]
        show_columns([each.name for each in result.columns], [list(map(_cell, row)) for row in result.rows], numeric)
    _show_notes(result, period, limit)


def _show_notes(result: SqlResult, period: tuple[datetime, datetime], limit: int) -> None:
    """Say on standard error what the rows are of, and what may be missing. Exit code 1 for a file that was skipped."""
    first, end = (f"{each:%Y-%m-%d %H:%M:%S}" for each in period)
    if result.reads:
        rows = plural(len(result.rows), "row", "rows")
        note(f"{rows}; the tables have what happened from {first} to {end} (UTC). --from and --to choose the range")
    if result.is_cut:
        note(f"there are more than {plural(limit, 'row', 'rows')}; use --limit, or a query with fewer rows")
    for each in result.notes:
        note(each)
    for each in result.unreadable:
        warn(f"rows are missing: {each}")
    if result.unreadable:
        raise typer.Exit(_FOUND_UNREADABLE)


def _documents(result: SqlResult) -> list[dict[str, Any]]:
    return [
        {column.name: _json_value(column, value) for column, value in zip(result.columns, row, strict=True)}
        for row in result.rows
    ]


def _json_value(column: ResultColumn, value: Any) -> Any:
    """Return a value for JSON: JSON as it is, decimals with all digits, NaN and infinity as text."""
    from eventbridge.errors import EventError
    from eventbridge.event.json_document import Number, parse_value

    if isinstance(value, str) and column.kind == "number":
        return Number(value)
    if isinstance(value, str) and column.kind == "json":
        try:
            return parse_value(value)
        except EventError:
            return value
    return str(value) if isinstance(value, float) and value - value != 0 else value


def _cell(value: Any) -> str:
    """Return a value as text; unlike in other tables, numbers have all digits, and times have milliseconds."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3].removesuffix(".000")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.10g}"
    return "" if value is None else str(value)


def _show_csv(result: SqlResult) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([each.name for each in result.columns])
    for row in result.rows:
        writer.writerow([value.isoformat() if isinstance(value, datetime) else _cell(value) for value in row])
    print_line(text.getvalue().rstrip("\n"))
