"""`eventbridge batch`: repair one."""

from __future__ import annotations

from typing import Annotated

import typer

from eventbridge.cli.output import JsonOption, note, print_line, show_json
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.suggestion import Group
from eventbridge.cli.table import counted

app = typer.Typer(
    cls=Group, help="Repair a batch that cannot be committed, or that lost files since.", no_args_is_help=True
)


@app.callback()
def _group() -> None:
    """Repair a batch that cannot be committed, or that lost files since."""


@app.command()
def repair(
    batch: Annotated[str, typer.Argument(metavar="BATCH", help="Id of a batch, or its beginning.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is wrong, and what would be done.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Repair a batch with a surplus, or with files that are lost, damaged or wrong, and commit it.

    Delivery files are routed again from the archive; dead letters, and the manifest of a committed batch, are rebuilt
    from its other files. Otherwise the batch is settled again: a delivery whose response is lost is tried again, under
    the same id. Nothing is dropped; a record in the store lists the files that were set aside.
    """
    from eventbridge.repair.audit import find_batch
    from eventbridge.repair.repair import repair_batch
    from eventbridge.routing.in_process import InProcessRouter

    with open_runtime(expects_ledger=True, is_action=not dry_run) as runtime:
        found = repair_batch(runtime, find_batch(runtime, batch), InProcessRouter(runtime.store), dry_run=dry_run)
    if as_json:
        show_json(found)
        return
    if not found.needed:
        print_line(
            f"batch {found.batch_id}: every file is there and correct, and there is no surplus; nothing to repair"
        )
        return
    for file in found.unreadable:
        print_line(f"cannot be read: {file}")
    for file in found.wrong:
        print_line(f"contradicts the other files: {file}")
    for delivery in found.surplus:
        print_line(f"surplus in the settlement: {delivery}")
    would = "would be " if dry_run else ""
    for file in found.made_again:
        print_line(f"{would}rebuilt: {file}")
    if found.settled_again:
        print_line(f"{would}settled again; {counted(found.unproven, 'delivery', 'deliveries')} {would}tried again")
    if dry_run:
        note("nothing was changed; run it without --dry-run to repair the batch")
        return
    print_line(f"recorded in {found.record}")
    print_line("committed" if found.committed else "not committed: its run continues with it")
