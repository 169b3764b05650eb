"""Defines the command group `tables`, which registers the archive in an Iceberg catalog."""

from __future__ import annotations

from typing import Annotated

import typer

from eventbridge.cli.output import JsonOption, show_document, show_table
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.suggestion import Group

app = typer.Typer(cls=Group, help="Register the archive as tables of an Iceberg catalog.", no_args_is_help=True)


@app.callback()
def _tables() -> None:
    """Register the archive as tables of an Iceberg catalog."""


@app.command(short_help="Register the files of events and deliveries in an Iceberg catalog.")
def register(
    connection: Annotated[
        str, typer.Argument(metavar="CONNECTION", help="The connection that leads to the catalog, such as lake.")
    ],
    namespace: Annotated[
        str, typer.Option(metavar="NAME", help="The namespace of the tables; it must exist.")
    ] = "eventbridge",
    as_json: JsonOption = False,
) -> None:
    """Register the Parquet files of events and deliveries as tables, without copying a byte.

    Repeat it, such as every hour: it adds new files, and drops those that retention has removed. The tables are
    events_BUS, deliveries and settlements (the status of each delivery after its batch).
    """
    from eventbridge.upkeep.archive_tables import register_archive

    with open_runtime(expects_ledger=True) as runtime:
        found = register_archive(runtime, connection, namespace)
    if as_json:
        show_document(found)
        return
    show_table(
        "Tables of the archive",
        ["table", "files", "added", "removed"],
        [[each.table, each.files, each.added, each.removed] for each in found],
    )
