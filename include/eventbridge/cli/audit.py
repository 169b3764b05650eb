"""`eventbridge audit`: recomputes the books from the store; exit code 1 if anything is missing or too much."""

from __future__ import annotations

from typing import Annotated

import typer

from eventbridge.cli.output import JsonOption, show_json, show_table
from eventbridge.cli.workplace import workplace
from eventbridge.stages.audit import Audit, audit


def show_audit(
    batch: Annotated[str | None, typer.Option(help="Audit only this batch.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute the books of every committed batch, parked generations included, and print every difference."""
    with workplace() as work:
        found = audit(work, batch)
    if as_json:
        show_json(found)
    else:
        show_books(found)
    if found.differences:
        raise typer.Exit(1)


def show_books(found: Audit) -> None:
    """Print the sums of an audit and its differences."""
    show_table(
        f"Books of {found.batches:,} committed batches ({found.open_batches:,} still open)",
        ["events", "count"],
        [[name.replace("_", " "), count] for name, count in found.events.items()],
    )
    show_table(
        "Deliveries",
        ["rule/target", "matched", "delivered", "parked", "dead-lettered"],
        [[key, row["matched"], row["delivered"], row["parked"], row["dead"]] for key, row in found.deliveries.items()],
    )
    for difference in found.differences:
        typer.echo(f"DIFFERENCE {difference}")
    count = len(found.differences)
    typer.echo("0 differences: every event is accounted for" if not count else f"{count} differences")
