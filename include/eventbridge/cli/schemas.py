"""Defines the command group `schemas`, which shows the fields of each event type, learned from archived events."""

from __future__ import annotations

from typing import Annotated

import typer

from eventbridge.cli.output import JsonOption, print_line, show_document, show_table
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.suggestion import Group

app = typer.Typer(cls=Group, help="Show the fields of the events of each type.", no_args_is_help=True)

_Bus = Annotated[str | None, typer.Option("--bus", metavar="BUS", help="Only on this bus.")]


@app.command("list", short_help="List the event types of each bus.")
def list_schemas(bus: _Bus = None, as_json: JsonOption = False) -> None:
    """List the event types of each bus, with the number of sampled events, of fields, and of lost fields."""
    from eventbridge.views.schemas import all_schemas
    from eventbridge.views.trace.explain import refuse_unknown_bus

    with open_runtime(expects_ledger=True) as runtime:
        found = all_schemas(runtime, bus)
        if not found and bus is not None:
            refuse_unknown_bus(runtime, bus)
    if as_json:
        show_document(found)
        return
    rows = [[each.bus, each.type, each.sampled, each.fields, each.lost, each.first_at, each.last_at] for each in found]
    show_table("Types, times in UTC", ["bus", "type", "sampled", "fields", "lost", "first", "last"], rows)


@app.command(short_help="Show the fields of an event type.")
def show(
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="An event type, such as order.placed.")],
    bus: _Bus = None,
    as_json: JsonOption = False,
) -> None:
    """Show each field of an event type: its types, the share of events without a value, and an example."""
    from eventbridge.views.schemas import schemas_named

    with open_runtime(expects_ledger=True) as runtime:
        found = schemas_named(runtime, type_, bus)
    if as_json:
        show_document(found)
        return
    for number, each in enumerate(found):
        if number:
            print_line()
        rows = [
            [
                field.path,
                " or ".join(field.types) or "null",
                f"{field.null_rate:.1%}",
                _state(field.lost),
                field.example,
            ]
            for field in each.fields
        ]
        last = f"{each.last_at:%Y-%m-%d %H:%M} UTC"
        title = f"{each.type} on {each.bus}, events sampled: {each.sampled:,}, the last at {last}"
        show_table(title, ["field", "type", "null", "state", "example"], rows)


def _state(lost: bool) -> str:
    return "lost" if lost else ""
