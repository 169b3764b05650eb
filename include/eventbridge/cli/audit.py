"""Defines the command `audit`, which checks from the store that every event is accounted for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.colour import styled
from eventbridge.cli.output import JsonOption, plural, print_line, show_document, show_fields, show_table, visible
from eventbridge.cli.progress import shown_progress
from eventbridge.cli.runtime import open_runtime

if TYPE_CHECKING:
    from eventbridge.repair.audit import Audit

_EVENTS = {
    "range_total": "offsets taken",
    "from_archive": "from the archive",
    "gaps": "gaps in the log",
    "read": "read",
    "malformed": "malformed",
    "duplicate": "duplicate",
    "tombstone": "tombstones",
    "valid": "valid",
}


#: The rows that are shown only if they are not 0.
_HIDDEN_IF_ZERO = ("from_archive", "tombstone")


def show_audit(
    batch: Annotated[
        str | None, typer.Option(metavar="ID", help="Audit only this batch; the beginning of its id is enough.")
    ] = None,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole", help="Also read every byte of the batches' files, which takes long for a large archive."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Recompute the reconciliation of every committed batch from the store and print every difference; changes nothing.

    Without --batch it also follows every delivery that was ever pending to its current state, and checks that committed
    offsets have no gap and that the store holds no batch that is missing from the ledger.
    Exit code 1 if there is a difference.
    """
    from eventbridge.repair.audit import audit, find_batch

    with open_runtime(expects_ledger=True) as runtime:
        batch_id = None if batch is None else find_batch(runtime, batch)
        with shown_progress("auditing", "batches") as progress:
            found = audit(runtime, batch_id, whole=whole, progress=progress)
    if as_json:
        show_document(found)
    else:
        show_reconciliation(found)
    if found.differences:
        raise typer.Exit(1)


def show_reconciliation(result: Audit) -> None:
    """Print what an audit counted, and every difference."""
    pruned = f", {result.pruned:,} of them pruned (only the manifest is audited)" if result.pruned else ""
    print_line(
        f"{plural(result.batches, 'committed batch', 'committed batches')}{pruned}, {result.open_batches:,} still open"
    )
    if result.batches:
        print_line()
        print_line("Events")
        sums = {name: count for name, count in result.events.items() if count or name not in _HIDDEN_IF_ZERO}
        show_fields((f"  {_EVENTS[name]}", count) for name, count in sums.items())
        print_line()
        show_table(
            "Deliveries",
            ["rule/target", "matched", "delivered", "pending", "dead-lettered"],
            [
                [key, row["matched"], row["delivered"], row["pending"], row["dead_lettered"]]
                for key, row in result.deliveries.items()
            ],
        )
        print_line()
    for difference in result.differences:
        print_line(f"{styled('DIFFERENCE', sys.stdout, typer.colors.RED)} {visible(difference)}")
    if any(difference.startswith("batch ") for difference in result.differences):
        print_line("`eventbridge batches repair BATCH --dry-run` shows what can be repaired")
    if result.differences:
        print_line(f"{plural(len(result.differences), 'difference', 'differences')}: not every event is accounted for")
    elif result.batches:
        print_line("0 differences: every event is accounted for")
    else:
        print_line("0 differences: nothing has been committed yet")
