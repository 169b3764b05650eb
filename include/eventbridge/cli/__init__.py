"""Defines the command line `eventbridge`: its commands, help and error handling.

Modules here import what a command needs inside the command; see `eventbridge.cli.runtime`.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from typing import Annotated, NoReturn, TextIO, cast

import typer

from eventbridge.cli import (
    audit,
    backup,
    batches,
    buses,
    dead_letters,
    deliver,
    erase,
    events,
    init,
    installation,
    mcp,
    plugins,
    quality,
    queues,
    redrives,
    replays,
    rules,
    schemas,
    sql,
    stats,
    status,
    tables,
    targets,
    tokens,
)
from eventbridge.cli.failure import (
    ABORTED,
    BUG_EXIT_CODE,
    SYSTEM,
    UsageError,
    failure,
    product_failure,
    unexpected_failure,
    usage_failure,
)
from eventbridge.cli.output import CLOSED_PIPE, OutputWithoutPlugIns, end_output, print_line
from eventbridge.cli.suggestion import Group
from eventbridge.errors import EventBridgeError, InfrastructureError, PackageMissing, UserError
from eventbridge.version import __version__

HELP = """
Route events from a bus to targets by rules in files: at least once, with every event accounted for.

Commands that print data take `-o json`, or --json, and `-o yaml`.

\b
Exit codes:
  0    done
  1    something was found: a difference, a failed check, a file that cannot be read
  2    your input is wrong: a rule, a setting, a name or the command line
  3    EventBridge stopped so that nothing is lost: you must act
  4    a disk, database, bus or Spark failed: nothing is lost, try again
  70   a bug of EventBridge: please report it
  130  interrupted by Ctrl-C (143: by SIGTERM)
"""

app = typer.Typer(
    cls=Group,
    name="eventbridge",
    help=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
#: The groups of commands, one for each kind of thing.
_GROUPS = (
    ("rules", rules.app),
    ("buses", buses.app),
    ("events", events.app),
    ("targets", targets.app),
    ("queues", queues.app),
    ("dead-letters", dead_letters.app),
    ("redrives", redrives.app),
    ("replays", replays.app),
    ("batches", batches.app),
    ("schemas", schemas.app),
    ("plugins", plugins.app),
    ("quality", quality.app),
    ("tables", tables.app),
    ("tokens", tokens.app),
    ("ledger", installation.ledger_app),
    ("backup", backup.app),
)
app.command("init", short_help="Create a folder with a rule, its tests and events to begin with.")(init.init)
app.command("status", short_help="Show the status of runners, batches, pending deliveries and targets.")(
    status.show_status
)
app.command("deliver", short_help="Deliver a runner's events in this process, without Airflow.")(deliver.deliver)
app.command("audit", short_help="Check from the store that every event is accounted for.")(audit.show_audit)
app.command("erase", short_help="Erase the data of events.")(erase.erase)
app.command("stats", short_help="Show the cost of each rule, by day.")(stats.stats)
app.command("sql", short_help="Query events, deliveries, attempts, dead letters and batches in SQL.")(sql.sql)
for _name, _group in _GROUPS:
    app.add_typer(_group, name=_name)
app.command("heartbeat", short_help="Send one heartbeat event with the status of the installation.")(
    installation.heartbeat
)
app.command("serve", short_help="Serve the HTTP API and the web page.")(installation.serve)
app.command("mcp", short_help="Serve agents by the Model Context Protocol.")(mcp.mcp)
app.command("maintain", short_help="Remove data past its retention.")(installation.maintain)
app.command("init-airflow", short_help="Add EventBridge's DAGs to Airflow.")(installation.init_airflow)
app.command("compile", short_help="Compile the matcher before the first event needs it.")(installation.compile_matcher)


def _show_version(wanted: bool) -> None:
    if wanted:
        print_line(f"eventbridge {__version__}")
        raise typer.Exit


@app.callback()
def _everywhere(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the command itself."""


def main() -> None:
    """Run the command line; report an EventBridgeError as one message on standard error and exit with its code."""
    # the streams are None if the parent process closed them
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # escape what a terminal cannot show; never a traceback
    own, sys.stdout = sys.stdout, cast(TextIO, OutputWithoutPlugIns(sys.stdout))
    try:
        _run()
    except BrokenPipeError:
        _end_unread()
    except Exception as error:
        _fail_as_bug(error)
    finally:
        sys.stdout = own


def _run() -> None:
    try:
        code = app(prog_name="eventbridge", standalone_mode=False)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # click exits with 1 if its help meets a closed pipe
            _end_unread()
        raise
    except UsageError as error:
        _fail(usage_failure(error), error.exit_code)
    except typer.Abort:
        _fail(failure(ABORTED, "aborted: nothing was changed", UserError.exit_code), UserError.exit_code)
    except EventBridgeError as error:
        _fail(product_failure(error), error.exit_code)
    except ModuleNotFoundError as error:
        missing = PackageMissing.from_import_error(error)
        if missing is None:
            raise
        _fail(product_failure(missing), missing.exit_code)
    except BrokenPipeError:
        raise
    except OSError as error:  # such as a full disk, or a folder without permission
        _fail(failure(SYSTEM, _os_error_text(error), InfrastructureError.exit_code), InfrastructureError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _os_error_text(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{os.strerror(error.errno) if error.errno else error}"


def _fail_as_bug(error: Exception) -> NoReturn:
    traceback.print_exception(error)
    _fail(unexpected_failure(error), BUG_EXIT_CODE)


def _end_unread() -> None:
    """Discard buffered output and exit with CLOSED_PIPE, because the reader has closed the pipe."""
    end_output(sys.stdout, sys.stderr)
    sys.exit(CLOSED_PIPE)


def _fail(message: str, exit_code: int) -> NoReturn:
    for stream, text in ((sys.stderr, message), (sys.stdout, "")):
        try:
            stream.write(text)
            stream.flush()
        except BrokenPipeError:
            raise
        except OSError:  # the disk is full, which only the exit code can report
            end_output(stream)
    sys.exit(exit_code)
