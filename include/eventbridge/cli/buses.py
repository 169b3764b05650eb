"""Defines the command group `buses`, which lists and shows event buses."""

from __future__ import annotations

from typing import Annotated

import typer

from eventbridge.cli.output import JsonOption, print_line, show_document, show_fields, show_table
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.suggestion import Group

app = typer.Typer(cls=Group, help="List and show event buses.", no_args_is_help=True)


@app.command("list", short_help="List the event buses of the rule files.")
def list_buses(as_json: JsonOption = False) -> None:
    """List the event buses of the current rule files, with the number of rules and the lag of each."""
    from eventbridge.views.buses import bus_statuses

    with open_runtime(expects_ledger=True) as runtime:
        found = bus_statuses(runtime)
    if as_json:
        show_document(found)
        return
    show_table(
        "Buses",
        ["bus", "source", "topics", "runners", "rules", "lag"],
        [[b.bus, b.source, ", ".join(b.topics), ", ".join(b.runners), b.rules, _number_text(b.lag)] for b in found],
    )


@app.command(short_help="Show one event bus with its partitions.")
def show(
    bus: Annotated[str, typer.Argument(metavar="BUS", help="Name of the event bus in the rule files.")],
    as_json: JsonOption = False,
) -> None:
    """Show one event bus: its source, and how far each runner has come in each partition."""
    from eventbridge.views.buses import bus_status

    with open_runtime(expects_ledger=True) as runtime:
        found = bus_status(runtime, bus)
    if as_json:
        show_document(found)
        return
    show_fields(
        [
            ("bus", found.bus),
            ("source", found.source),
            ("topics", ", ".join(found.topics)),
            ("runners", ", ".join(found.runners)),
            ("rules", f"{found.rules:,}"),
            ("archive is kept", f"{found.retention_seconds / 86_400:,.4g} days"),
        ]
    )
    print_line()
    show_table(
        "Partitions, in events",
        ["runner", "topic", "partition", "committed", "end", "lag"],
        [
            [p.runner, p.partition.topic, p.partition.partition_id, p.committed, p.end, _number_text(p.lag)]
            for p in found.partitions
        ],
    )
    for gap in dict.fromkeys(each.gap for each in found.partitions if each.gap):
        print_line(gap)


def _number_text(number: int | None) -> object:
    return "unknown" if number is None else number
