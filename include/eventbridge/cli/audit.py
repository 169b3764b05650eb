"""`eventbridge audit`: recomputes the reconciliation from the store; exit code 1 for a difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.output import JsonOption, print_line, show_json
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.table import counted, show_fields, show_table, visible

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


#: Rows that are shown only if they are not 0.
_IF_ANY = ("from_archive", "tombstone")


def show_audit(
    batch: Annotated[
        str | None, typer.Option(metavar="ID", help="Audit only this batch; the beginning of its id is enough.")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Also read every byte of their files, which takes long for a large archive.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Recompute the reconciliation of every committed batch from the store and print every difference; changes nothing.

    Without --batch it also follows every delivery that was ever pending to its current state, and checks that committed
    offsets have no gap and that the store holds no batch that the ledger does not know.
    Exit code 1 if there is a difference.
    """
    from eventbridge.repair.audit import audit, find_batch

    with open_runtime(expects_ledger=True) as runtime:
        found = audit(runtime, None if batch is None else find_batch(runtime, batch), whole=whole)
    if as_json:
        show_json(found)
    else:
        _show(found)
    if found.differences:
        raise typer.Exit(1)


def _show(found: Audit) -> None:
    pruned = f", {found.pruned:,} of them pruned: their manifests are audited" if found.pruned else ""
    print_line(
        f"{counted(found.batches, 'committed batch', 'committed batches')}{pruned}, {found.open_batches:,} still open"
    )
    if found.batches:
        print_line()
        print_line("Events")
        sums = {name: count for name, count in found.events.items() if count or name not in _IF_ANY}
        show_fields((f"  {_EVENTS[name]}", count) for name, count in sums.items())
        print_line()
        show_table(
            "Deliveries",
            ["rule/target", "matched", "delivered", "pending", "dead-lettered"],
            [
                [key, row["matched"], row["delivered"], row["pending"], row["dead"]]
                for key, row in found.deliveries.items()
            ],
        )
        print_line()
    for difference in found.differences:
        print_line(f"DIFFERENCE {visible(difference)}")
    if any(difference.startswith("batch ") for difference in found.differences):
        print_line("`eventbridge batch repair BATCH --dry-run` shows what can be repaired")
    if found.differences:
        print_line(f"{counted(len(found.differences), 'difference', 'differences')}: not every event is accounted for")
    elif found.batches:
        print_line("0 differences: every event is accounted for")
    else:
        print_line("0 differences: nothing is committed yet")
