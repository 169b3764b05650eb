"""`eventbridge ledger`: create and migrate a ledger on a server, and copy one to another database."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from eventbridge.cli.output import JsonOption, print_line, show_json
from eventbridge.cli.runtime import settings
from eventbridge.cli.suggestion import Group
from eventbridge.cli.table import counted

_NAMED = "A URL without a password, or the name of a variable that holds one, such as EVENTBRIDGE_LEDGER_URL."

app = typer.Typer(cls=Group, help="Create, migrate or copy the ledger of a database server.", no_args_is_help=True)


@app.command("migrate")
def migrate(as_json: JsonOption = False) -> None:
    """Create or upgrade the ledger's tables in the database that EVENTBRIDGE_LEDGER_URL names.

    In PostgreSQL only this command does so; a ledger in a file is migrated when it is opened. You may repeat it, also
    while other processes use the ledger.
    """
    from eventbridge.ledger import Ledger

    before, now = Ledger.migrate(settings().ledger_url)
    if as_json:
        show_json({"before": before, "now": now})
    elif before == now:
        print_line(f"the ledger is already at revision {now}")
    else:
        print_line(f"the ledger is now at revision {now}; before: {before or 'no tables'}")


@app.command("copy")
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help=f"The existing ledger. {_NAMED}")],
    destination: Annotated[str, typer.Argument(metavar="TO", help="An empty, migrated one; as FROM.")],
    as_json: JsonOption = False,
) -> None:
    """Copy a ledger into another database, completely or not at all, and count the rows.

    Stop Airflow and every `eventbridge serve` first. Then set EVENTBRIDGE_LEDGER_URL to the copy, and do not use the
    old ledger again.
    A URL with a password is refused, as every user of this machine sees the arguments of a command: put it into a
    variable, or into a file that <variable>_FILE names.
    """
    from eventbridge.config.indirect import named_url
    from eventbridge.ledger.copy import copy_ledger

    counts = copy_ledger(named_url(source, os.environ), named_url(destination, os.environ))
    if as_json:
        show_json({"tables": counts, "rows": sum(counts.values())})
        return
    for name, count in sorted(counts.items()):
        print_line(f"{name}: {count:,}")
    print_line(f"{counted(sum(counts.values()), 'row', 'rows')} copied, of {counted(len(counts), 'table', 'tables')}")
