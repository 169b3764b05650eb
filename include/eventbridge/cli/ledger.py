"""`eventbridge ledger`: make and migrate a ledger on a server, and move one to another database."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from eventbridge.cli.output import JsonOption, print_line, show_json
from eventbridge.cli.runtime import settings
from eventbridge.cli.suggestion import Group
from eventbridge.cli.table import counted

_NAMED = "A URL without a password, or the name of a variable that holds one, such as EVENTBRIDGE_LEDGER_URL."

app = typer.Typer(
    cls=Group, help="Make and migrate the ledger of a database server; move a ledger.", no_args_is_help=True
)


@app.command("migrate")
def migrate(as_json: JsonOption = False) -> None:
    """Make the ledger's tables, or bring them up to date, in the database that EVENTBRIDGE_LEDGER_URL names.

    In PostgreSQL nothing else does; a ledger in a file does it by itself. May be repeated, and run while others work.
    """
    from eventbridge.ledger import Ledger

    before, now = Ledger.migrate(settings().ledger_url)
    if as_json:
        show_json({"before": before, "now": now})
    elif before == now:
        print_line(f"the ledger has revision {now} already")
    else:
        print_line(f"the ledger has revision {now} now; before: {before or 'no tables'}")


@app.command("copy")
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help=f"The ledger that is there. {_NAMED}")],
    destination: Annotated[str, typer.Argument(metavar="TO", help="An empty, migrated one; as FROM.")],
    as_json: JsonOption = False,
) -> None:
    """Copy a ledger into another database: all of it, counted, or nothing.

    End Airflow and every `eventbridge serve` first. Afterwards EVENTBRIDGE_LEDGER_URL names the copy, and the old
    ledger must not be used any more.
    A URL with a password is refused here, as every user of this machine sees the arguments of a command: put it into a
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
