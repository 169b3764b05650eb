"""Defines the commands `audit` and `batch repair`, which check the reconciliation from the store and repair a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.output import JsonOption, note, plural, print_line, show_fields, show_json, show_table, visible
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.suggestion import Group

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
        found = audit(runtime, None if batch is None else find_batch(runtime, batch), whole=whole)
    if as_json:
        show_json(found)
    else:
        _show(found)
    if found.differences:
        raise typer.Exit(1)


def _show(result: Audit) -> None:
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
                [key, row["matched"], row["delivered"], row["pending"], row["dead"]]
                for key, row in result.deliveries.items()
            ],
        )
        print_line()
    for difference in result.differences:
        print_line(f"DIFFERENCE {visible(difference)}")
    if any(difference.startswith("batch ") for difference in result.differences):
        print_line("`eventbridge batch repair BATCH --dry-run` shows what can be repaired")
    if result.differences:
        print_line(f"{plural(len(result.differences), 'difference', 'differences')}: not every event is accounted for")
    elif result.batches:
        print_line("0 differences: every event is accounted for")
    else:
        print_line("0 differences: nothing has been committed yet")


batch_app = typer.Typer(
    cls=Group, help="Repair a batch that cannot be committed, or that has lost files.", no_args_is_help=True
)


@batch_app.callback()
def _batch_group() -> None:
    """Repair a batch that cannot be committed, or that has lost files."""


@batch_app.command(short_help="Repair a batch and commit it.")
def repair(
    batch: Annotated[str, typer.Argument(metavar="BATCH", help="Id of a batch, or its beginning.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report what is wrong and what would be done.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Repair a batch with lost, damaged or wrong files, or with a delivery that is settled twice, and commit it.

    Delivery files are recreated by routing the archived events again. Dead letters, and the manifest of a committed
    batch, are rebuilt from the batch's other files. Otherwise the batch is settled again: a delivery whose response is
    lost is tried again, with the same id. Nothing is dropped: a record in the store lists the files that were set
    aside.
    """
    from eventbridge.repair.audit import find_batch
    from eventbridge.repair.repair import repair_batch
    from eventbridge.routing.task import InProcessRouter

    with open_runtime(expects_ledger=True, is_action=not dry_run) as runtime:
        found = repair_batch(runtime, find_batch(runtime, batch), InProcessRouter(runtime.store), dry_run=dry_run)
    if as_json:
        show_json(found)
        return
    if not found.needed:
        print_line(
            f"batch {found.batch_id}: every file exists and is correct, and no delivery is settled twice; "
            "nothing to repair"
        )
        return
    for file in found.unreadable:
        print_line(f"cannot be read: {file}")
    for file in found.wrong:
        print_line(f"contradicts the other files: {file}")
    for delivery in found.surplus:
        print_line(f"settled twice, or not a delivery of the batch: {delivery}")
    would = "would be " if dry_run else ""
    for file in found.rebuilt:
        print_line(f"{would}rebuilt: {file}")
    if found.settled_again:
        print_line(f"{would}settled again; deliveries to try again: {found.unproven:,}")
    if dry_run:
        note("nothing was changed; run the command without --dry-run to repair the batch")
        return
    print_line(f"recorded in {found.record}")
    print_line("committed" if found.committed else "not committed yet: the batch's run continues it")
