"""Defines the command `erase`, which erases the data of events from the store and the embedded buses."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.output import JsonOption, confirm, note, plural, print_line, show_document, visible
from eventbridge.cli.runtime import open_runtime, user

if TYPE_CHECKING:
    from eventbridge.model.erasure import Erasure


def erase(
    event_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Erase the events with this id.")] = None,
    subject: Annotated[str | None, typer.Option(metavar="SUBJECT", help="Erase the events with this subject.")] = None,
    bus: Annotated[str | None, typer.Option(metavar="BUS", help="Only on this bus; default: on all.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report what would be erased.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Erase the data of delivered events from archive, deliveries, attempts, dead letters and embedded buses.

    Counts and fingerprints stay, so that audits still prove every event. Replays and redrives no longer have the
    events. What brokers and targets hold is named and stays. An event that is still to be delivered is refused, and
    nothing is erased.
    """
    from eventbridge.upkeep.erasure import ErasureSelection
    from eventbridge.upkeep.erasure import erase as run

    selection = ErasureSelection(event_id, subject, bus)
    if not dry_run and not yes:
        confirm("The data of the selected events is lost for ever.", "Erase it?")
    with open_runtime(expects_ledger=True, needs_ledger=True) as runtime:
        done = run(runtime, selection, by=f"command, {user()}@{socket.gethostname()}", dry_run=dry_run)
    if as_json:
        show_document(done)
        return
    for line in _lines(done):
        print_line(visible(line))
    if dry_run:
        note("nothing was erased; run the command without --dry-run to erase the data")


def _lines(result: Erasure) -> list[str]:
    erased = "would be erased" if result.dry_run else "erased"
    lines = [f"{plural(result.events, 'event', 'events')} {erased}, in {plural(result.files, 'file', 'files')}"]
    lines += [f"{folder}: {plural(count, 'row', 'rows')} {erased}" for folder, count in result.rows.items()]
    lines += [f"bus {bus}: {plural(count, 'message', 'messages')} {erased}" for bus, count in result.messages.items()]
    lines += [f"not erased: what the broker of the bus {bus} still holds" for bus in result.brokers]
    lines += [f"not erased: what the target {target} received" for target in result.targets]
    if not result.dry_run:
        lines.append(f"the record of this erasure is {result.erasure_id}, below erasures/ in the store")
    return lines
