"""`eventbridge maintain`: removes files, rows and messages past their retention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.output import JsonOption, note, print_line, show_json
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.table import counted

if TYPE_CHECKING:
    from eventbridge.upkeep.run import Maintained

#: The removed part of a batch, by the name of the part it still had.
_LOST = {
    "all": "deliveries, outcomes and settlement",
    "archive": "archive",
    "dead_letters": "dead letters",
    "manifest": "manifest, and the ledger's row",
}


def maintain(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove files, rows and messages past their retention from the store, the ledger and the embedded buses.

    It also removes orphaned files from the store. It keeps everything that a pending delivery, a deferred match, a
    replay or a redrive still needs. It ends after EVENTBRIDGE_MAINTAIN_TIMEOUT, and the next run continues. The DAG
    eventbridge_maintain_store does the same every hour.
    """
    from eventbridge.upkeep.maintain import maintain as run

    with open_runtime(expects_ledger=True, writes=not dry_run) as runtime:
        done = run(runtime, dry_run=dry_run)
    if as_json:
        show_json(done)
        return
    for line in _summary(done):
        print_line(line)
    if dry_run:
        note("nothing was changed; run it without --dry-run to remove them")


def _summary(done: Maintained) -> list[str]:
    """Return a line for each kind of thing that was removed, would be removed, or stays."""
    removed = "would be removed" if done.dry_run else "removed"
    lines = [
        f"{counted(count, 'batch', 'batches')}: {_LOST[what]} {removed}" for what, count in sorted(done.batches.items())
    ]
    lines.append(f"{counted(done.files, 'file', 'files')} {removed}, {done.lost_files:,} of them orphaned")
    if not done.dry_run:
        lines.append(f"{counted(done.rows, 'row', 'rows')} of the ledger removed")
    if done.rule_changes or done.requests:
        changes = counted(done.rule_changes, "change of a rule", "changes of rules")
        lines.append(f"{changes} and {counted(done.requests, 'replay or redrive', 'replays and redrives')} removed")
    for bus, count in sorted(done.messages.items()):
        lines.append(f"bus {bus}: {counted(count, 'message', 'messages')} {removed}")
    for reason, count in sorted(done.kept.items()):
        lines.append(f"past retention and kept, {count:,}: {reason}")
    if done.store_bytes is not None:
        lines.append(f"the store holds {done.store_bytes:,} bytes")
    if not done.finished:
        lines.append("the time of this run is over; the next one continues")
    return lines
