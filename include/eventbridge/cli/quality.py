"""Defines the command group `quality`, which checks an hour with Great Expectations and shows results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.output import JsonOption, cell_text, note, plural, print_line, show_document, show_table
from eventbridge.cli.progress import shown_progress
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.suggestion import Group

if TYPE_CHECKING:
    from eventbridge.model.quality import Measure, QualityRecord

app = typer.Typer(cls=Group, no_args_is_help=True, help="Check the quality of an hour; list and show checks.")

_FAILED = 1


@app.command("check", short_help="Check an hour; exit code 1 if a check failed.")
def check(
    hour: Annotated[
        str | None,
        typer.Option("--hour", metavar="TIME", help="The beginning of an hour, in UTC; default: the last full hour."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check an hour of the archive with Great Expectations; an hour that was checked before shows that result.

    A rule whose `expect` failed is put on hold. Exit code 1 if a check failed.
    """
    from eventbridge.quality.check import check_hour

    with open_runtime() as runtime, shown_progress("checking the hour", ""):
        found = check_hour(runtime, hour)
    _show(found, as_json=as_json)
    if found.failures:
        raise typer.Exit(_FAILED)


@app.command("list", short_help="List the hours that were checked.")
def list_checks(
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum number of checks to list.")] = 24,
    as_json: JsonOption = False,
) -> None:
    """List the latest checked hours, the latest first."""
    from eventbridge.quality.record import list_checked_hours

    with open_runtime(expects_ledger=True) as runtime:
        found = list_checked_hours(runtime, limit)
    if as_json:
        show_document(found)
        return
    rows = [[c.hour, "passed" if c.passed else "failed", c.measures, c.failures, c.checked_at] for c in found]
    show_table("Quality checks, times in UTC", ["hour", "status", "measures", "failures", "checked"], rows)


@app.command("show", short_help="Show the check of an hour.")
def show(
    hour: Annotated[
        str | None,
        typer.Argument(metavar="TIME", help="A time within the hour, in UTC; default: the latest checked hour."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show every measure of a checked hour, with its bounds and the path of its Data Docs page."""
    from eventbridge.quality.record import find_record

    with open_runtime(expects_ledger=True) as runtime:
        found = find_record(runtime, hour)
    _show(found, as_json=as_json)


def _show(record: QualityRecord, *, as_json: bool) -> None:
    if as_json:
        show_document(record)
        return
    from eventbridge.policy.quality import number_text

    result = plural(len(record.failures), "failure", "failures") if record.failures else "passed"
    batches = plural(record.batches, "batch", "batches")
    print_line(
        f"{cell_text(record.hour)} UTC: {result}; {batches}, {plural(len(record.measures), 'measure', 'measures')}"
    )
    if record.open_batches:
        note(f"{plural(record.open_batches, 'batch', 'batches')} of the hour left out: not committed yet")
    failed = {(each.subject, each.name) for each in record.failures}
    rows = [
        [
            str(m.subject),
            m.name,
            number_text(m.value),
            _bounds(m),
            "FAILED" if (m.subject, m.name) in failed else m.note,
        ]
        for m in record.measures
    ]
    show_table("Measures", ["of", "measure", "value", "expected", ""], rows)
    dead = [[of, reason, count] for of, reasons in record.dead_letters.items() for reason, count in reasons.items()]
    show_table("Dead letters", ["rule/target", "reason", "count"], dead)
    if record.page:
        print_line(f"Data Docs: {record.page}")


def _bounds(measure: Measure) -> str:
    from eventbridge.policy.quality import number_text

    ends = (("at least", measure.at_least), ("at most", measure.at_most))
    return ", ".join(f"{word} {number_text(end)}" for word, end in ends if end is not None)
