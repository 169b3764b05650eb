"""Defines the command group `backup`, which checks what was restored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

from eventbridge.cli.output import JsonOption, plural, print_line, show_document
from eventbridge.cli.progress import shown_progress
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.suggestion import Group

if TYPE_CHECKING:
    from eventbridge.repair.backup import BackupCheck, BackupStatus

app = typer.Typer(cls=Group, help="Check whether a ledger and a store belong together.", no_args_is_help=True)

#: What each status means, and what to do.
_SENTENCES: Final[dict[BackupStatus, str]] = {
    "together": "Ledger and store belong together.",
    "ledger_older": "The ledger is older than the store, or was lost: restore its latest copy. With this one, events "
    "would be delivered again.",
    "store_older": "The store is older than the ledger, or lost files: restore its latest copy. With this one, some "
    "deliveries cannot be retried, replayed or audited.",
    "apart": "Ledger and store do not belong together: point EVENTBRIDGE_LEDGER_URL and EVENTBRIDGE_STORE_URI at those "
    "of one installation, or restore both from one backup.",
}


@app.command("check", short_help="Compare the ledger with the store, for example after both were restored.")
def check(as_json: JsonOption = False) -> None:
    """Compare the ledger with the store, for example after both were restored; change nothing.

    It looks for the manifest of each committed batch, for the batch of each manifest, and for the files that pending
    deliveries need. Exit code 1 if something is missing. `eventbridge audit` also reads the files.
    """
    from eventbridge.repair.backup import check_backup

    with open_runtime(needs_ledger=True) as runtime, shown_progress("comparing", "batches") as progress:
        found = check_backup(runtime, progress)
    if as_json:
        show_document(found)
    else:
        for line in _lines(found):
            print_line(line)
    if found.status != "together":
        raise typer.Exit(1)


def _lines(found: BackupCheck) -> list[str]:
    newest = "" if found.newest_batch is None else f", the newest planned at {found.newest_batch:%Y-%m-%d %H:%M:%S} UTC"
    lines = [f"{plural(found.batches, 'committed batch', 'committed batches')} in ledger {found.ledger}{newest}"]
    counts = {
        "{} of the store with no batch in the ledger": (found.unknown_manifests, "manifest", "manifests"),
        "{} of the ledger with no manifest in the store": (found.missing_manifests, "batch", "batches"),
        "{} missing that pending deliveries need": (found.missing_files, "file", "files"),
    }
    lines += [text.format(plural(*count)) for text, count in counts.items() if count[0]]
    lines += [f"the store names another ledger for its runners: {each}" for each in found.other_ledgers]
    lines += [f"  {each}" for each in found.examples]
    return [*lines, _SENTENCES[found.status]]
