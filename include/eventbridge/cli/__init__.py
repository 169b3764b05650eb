"""The command line `eventbridge`: rules, buses, status, delivery in this process, audit, dead letters, targets.

Exit codes: 0 done; 1 a difference, a false answer, or an error of ours; 2 what you wrote is wrong;
3 the product stopped to lose nothing and a person must act; 4 disk, database, bus or Spark failed, try again.
"""

from __future__ import annotations

import sys

import typer

from eventbridge.cli import audit, bus, dead_letters, deliver, rules, status, targets
from eventbridge.errors import EventBridgeError

app = typer.Typer(
    name="eventbridge",
    help=__doc__,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
app.add_typer(rules.app, name="rules")
app.add_typer(bus.app, name="bus")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(targets.app, name="targets")
app.command("status")(status.show_status)
app.command("deliver")(deliver.deliver)
app.command("audit")(audit.show_audit)


def main() -> None:
    """Run the command line; an error of the product is one message on standard error and its exit code."""
    try:
        app()
    except EventBridgeError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
