"""Defines the commands for the installation itself: init-airflow, ledger, compile, serve, heartbeat, maintain."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.output import JsonOption, note, plural, print_line, show_document, warn
from eventbridge.cli.progress import shown_progress
from eventbridge.cli.runtime import open_runtime, settings
from eventbridge.cli.suggestion import Group
from eventbridge.errors import EventBridgeError, UserError

if TYPE_CHECKING:
    from eventbridge.upkeep.run import Maintained


def init_airflow(
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="The DAGs folder; default: [core] dags_folder of Airflow.")
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Create the folder if it is missing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write two files into Airflow's DAGs folder: one imports all DAGs, the other shows errors in rule files.

    You may run it again: files that are up to date stay as they are. It never changes a file that it did not write.
    """
    from eventbridge.airflow.init_airflow import FILES, dags_folder_of_airflow, write_dag_files

    chosen = folder or dags_folder_of_airflow()
    created = not chosen.is_dir()
    if created and not create:
        raise UserError(_missing_folder_text(chosen, named=folder is not None))
    changed = write_dag_files(chosen)
    files = [chosen / name for name in FILES]
    if as_json:
        show_document(
            {
                "folder": str(chosen),
                "created": created,
                "files": [{"file": file.name, "written": file in changed} for file in files],
            }
        )
        return
    if created:
        print_line(f"Created {chosen}.")
    for file in files:
        print_line(f"Wrote {file}." if file in changed else f"{file} was up to date.")
    print_line(
        "Airflow imports the DAGs when it next reads the folder; restart it once after the package was installed."
        if changed
        else "Nothing was changed."
    )


def _missing_folder_text(folder: Path, *, named: bool) -> str:
    if named:
        return (
            f"the folder {folder} does not exist. Correct the name, or pass --create: "
            "Airflow reads DAGs from the folder that `[core] dags_folder` names"
        )
    return (
        f"Airflow's `[core] dags_folder` is {folder}, which does not exist. If your Airflow is elsewhere, set "
        "AIRFLOW_HOME or name the folder; if the folder is right, pass --create"
    )


_URL_HELP = "A URL without a password, or the name of a variable that holds one, such as EVENTBRIDGE_LEDGER_URL."

ledger_app = typer.Typer(cls=Group, help="Create, migrate or copy a ledger in a database.", no_args_is_help=True)


@ledger_app.command("migrate", short_help="Create or upgrade the ledger's tables.")
def migrate(as_json: JsonOption = False) -> None:
    """Create or upgrade the ledger's tables in the database that EVENTBRIDGE_LEDGER_URL names.

    In PostgreSQL, nothing else changes the tables; a ledger in a file is migrated when it is opened. You may run this
    command again, even while other processes use the ledger.
    """
    from eventbridge.ledger import Ledger

    before, now = Ledger.migrate(settings().ledger_url)
    if as_json:
        show_document({"before": before, "now": now})
    elif before == now:
        print_line(f"The ledger is already at revision {now}. Nothing was changed.")
    else:
        print_line(f"Ledger migrated to revision {now}; before: {before or 'no tables'}. Processes can use it now.")


@ledger_app.command("copy", short_help="Copy a ledger into another database.")
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help=f"The existing ledger. {_URL_HELP}")],
    destination: Annotated[str, typer.Argument(metavar="TO", help="An empty, migrated ledger, given like FROM.")],
    as_json: JsonOption = False,
) -> None:
    """Copy a ledger into another database, completely or not at all, and count the rows.

    Stop Airflow and every `eventbridge serve` first. Then set EVENTBRIDGE_LEDGER_URL to the copy, and do not use the
    old ledger again.
    A URL with a password is refused, as every user of this machine sees the arguments of a command: put it into a
    variable, or into a file that <variable>_FILE names.
    """
    from eventbridge.config.indirect import resolve_url
    from eventbridge.ledger.copy import copy_ledger

    urls = resolve_url(source, os.environ), resolve_url(destination, os.environ)
    with shown_progress("copying", "rows") as progress:
        counts = copy_ledger(*urls, progress)
    if as_json:
        show_document({"tables": counts, "rows": sum(counts.values())})
        return
    for name, count in sorted(counts.items()):
        print_line(f"{name}: {count:,}")
    rows, tables = plural(sum(counts.values()), "row", "rows"), plural(len(counts), "table", "tables")
    print_line(
        f"{rows} of {tables} copied. Set EVENTBRIDGE_LEDGER_URL to the copy, and do not use the old ledger again."
    )


def compile_matcher(as_json: JsonOption = False) -> None:
    """Compile the matcher for the workers of this installation, and archive the classes of Spark.

    Both take up to three minutes once, then a second or two. Run this command when you build an image; otherwise the
    first events wait for the compilation, and Spark takes twice as long to start.
    """
    from eventbridge.matching.scan.progress import telling_progress
    from eventbridge.routing.warm_up import compile_ahead
    from eventbridge.spark.server import archive_classes

    begun = time.perf_counter()
    with telling_progress(note):
        compile_ahead()
    seconds = round(time.perf_counter() - begun, 1)
    begun = time.perf_counter()
    try:
        archive_classes()
        archived: float | None = round(time.perf_counter() - begun, 1)
    except (EventBridgeError, OSError) as error:  # the archive only saves time
        warn(f"the classes of Spark are not archived: {error}")
        archived = None
    if as_json:
        show_document({"seconds": seconds, "spark_seconds": archived})
        return
    print_line(f"Compiled the matcher ({seconds} s). Each worker of this installation loads it in a second or two.")
    if archived is not None:
        print_line(f"Archived the classes of Spark ({archived} s). Spark starts in half the time.")


LOCAL = ("127.0.0.1", "::1", "localhost")


def serve(
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port to listen on; 0: any free port.")] = 8090,
) -> None:
    """Serve the HTTP API and the web page: publish with POST /v1/buses/BUS/events and a token from `tokens create`.

    SIGTERM or Ctrl-C stops it gracefully: it accepts no new calls, responds to calls in progress, and exits with 0.
    """
    from eventbridge.api.serve import serve as run

    if host not in LOCAL:
        warn(f"listening on {host} without TLS, so tokens travel in clear text: put a TLS proxy in front of it")
    with open_runtime() as runtime:
        run(runtime, host, port, lambda url: print_line(f"listening on {url}"))


_UNHEALTHY = 1


def heartbeat(
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL",
            help="The address to POST the event to. If it is a secret, leave it out here and put it into the "
            "connection that EVENTBRIDGE_HEARTBEAT_CONNECTION names.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Send one event with the status of the installation; run this command every minute.

    Exit code 1 if the event reports a problem, 4 if the address did not accept it.
    """
    from eventbridge.control.heartbeat import current_heartbeat, send_to_connection, send_to_url

    with open_runtime(expects_ledger=True, writes=True) as runtime:
        connection = runtime.settings.heartbeat_connection
        if url is None and connection is None:
            raise UserError("no address given. Give a URL, or set EVENTBRIDGE_HEARTBEAT_CONNECTION")
        if url is None and connection is not None:
            sent = send_to_connection(runtime, connection)
        else:
            sent = current_heartbeat(runtime)
    if url is not None:
        send_to_url(url, sent)
    if as_json:
        show_document(sent)
    else:
        for each in sent.problems:
            warn(each)
        print_line("Heartbeat sent; it reports problems." if sent.problems else "Heartbeat sent; healthy.")
    if sent.problems:
        raise typer.Exit(_UNHEALTHY)


#: Describes what was removed from a batch, by what it still had before.
_REMOVED_PARTS = {
    "all": "deliveries, outcomes and settlement",
    "archive": "archive",
    "dead_letters": "dead letters",
    "manifest": "manifest, and the ledger's row",
}


def maintain(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report what would be removed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove files, rows and messages past their retention from the store, the ledger and the embedded buses.

    It also removes orphaned files from the store. It keeps everything that a pending delivery, a deferred match, a
    replay or a redrive still needs. It ends after EVENTBRIDGE_MAINTAIN_TIMEOUT, and the next run continues. The DAG
    eventbridge_maintain_store does the same every hour.
    """
    from eventbridge.upkeep.maintain import maintain as run

    doing = "searching" if dry_run else "removing"
    with (
        open_runtime(expects_ledger=True, writes=not dry_run) as runtime,
        shown_progress(doing, "files, rows and messages") as progress,
    ):
        done = run(runtime, dry_run=dry_run, progress=progress)
    if as_json:
        show_document(done)
        return
    for line in _removal_lines(done):
        print_line(line)
    if dry_run:
        note("nothing was removed; run the command without --dry-run to remove the data")


def _removal_lines(result: Maintained) -> list[str]:
    """Return a line for each kind of data that was removed, would be removed, or stays."""
    removed = "would be removed" if result.dry_run else "removed"
    lines = [
        f"{plural(count, 'batch', 'batches')}: {_REMOVED_PARTS[what]} {removed}"
        for what, count in sorted(result.batches.items())
    ]
    if result.rule_changes or result.requests:
        changes = plural(result.rule_changes, "change of a rule", "changes of rules")
        lines.append(f"{changes} and {plural(result.requests, 'replay or redrive', 'replays and redrives')} removed")
    for bus, count in sorted(result.messages.items()):
        lines.append(f"bus {bus}: {plural(count, 'message', 'messages')} {removed}")
    if result.compacted:
        lines.append(f"{plural(result.compacted, 'file', 'files')} compacted into larger ones")
    if result.tables:
        lines.append(f"{plural(result.tables, 'table', 'tables')} of targets maintained")
    for reason, count in sorted(result.kept.items()):
        lines.append(f"past retention and kept, {count:,}: {reason}")
    if result.store_bytes is not None:
        lines.append(f"the store holds {result.store_bytes:,} bytes")
    files = f"{plural(result.files, 'file', 'files')} ({result.lost_files:,} orphaned)"
    if result.dry_run:
        return [*lines, f"{files} would be removed."]
    rows = plural(result.rows, "row", "rows")
    ends = "Nothing else is left to remove now." if result.finished else "The time is over: the next run continues."
    return [*lines, f"{files} and {rows} of the ledger removed. {ends}"]
