"""Defines the command group `batches`, which lists, shows and repairs batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.output import JsonOption, note, plural, print_line, show_document, show_fields, show_table
from eventbridge.cli.progress import shown_progress
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.suggestion import Group

if TYPE_CHECKING:
    from eventbridge.repair.repair import Repair
    from eventbridge.views.batches import BatchAccount

app = typer.Typer(cls=Group, help="List, show and repair batches.", no_args_is_help=True)

_BatchArgument = Annotated[str, typer.Argument(metavar="BATCH", help="Id of a batch, or its beginning.")]


@app.command("list", short_help="List batches, the newest first.")
def list_batches(
    limit: Annotated[int, typer.Option(min=1, max=1_000, metavar="N", help="Maximum number of batches to list.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List batches, the newest first, with their state and how long each took."""
    from eventbridge.views.batches import batch_page

    with open_runtime(expects_ledger=True) as runtime:
        found = batch_page(runtime, limit)
    if as_json:
        show_document(found.batches)
        return
    show_table(
        "Batches, times in UTC",
        ["batch", "kind", "runner", "state", "planned", "committed"],
        [[b.batch_id, b.kind, b.runner, b.state, b.planned_at, b.committed_at] for b in found.batches],
        ids={"batch"},
    )
    if found.cursor is not None:
        note(f"there are more than {limit}; use --limit")


@app.command(short_help="Show one batch with its events, chunks and reconciliation.")
def show(batch: _BatchArgument, as_json: JsonOption = False) -> None:
    """Show one batch: the offsets that it took, its chunks, how long each stage took, and its reconciliation."""
    from eventbridge.views.batches import batch_account

    with open_runtime(expects_ledger=True) as runtime:
        found = batch_account(runtime, batch)
    if as_json:
        show_document(found)
    else:
        _show(found)


def _show(account: BatchAccount) -> None:
    from eventbridge.cli.audit import show_reconciliation

    batch = account.batch
    times = [("planned at", batch.planned_at), ("committed at", batch.committed_at)]
    names = [("batch", batch.batch_id), ("kind", batch.kind), ("runner", batch.runner), ("bus", batch.bus or None)]
    show_fields([*names, ("state", batch.state), *times])
    ranges = [[r.partition.topic, r.partition.partition_id, r.start, r.end] for r in account.ranges]
    chunks = [[c.chunk_id, c.state, c.rows, c.succeeded, c.failed, c.error] for c in account.chunks]
    stages = [[s.stage, s.began_at, s.seconds] for s in account.stages]
    tables = (
        ("Offsets taken", ["topic", "partition", "from", "to"], ranges),
        ("Chunks", ["chunk", "state", "rows", "succeeded", "failed", "error"], chunks),
        ("Stages, times in UTC", ["stage", "began", "seconds"], stages),
    )
    for title, columns, rows in tables:
        if rows:
            print_line()
            show_table(title, columns, rows)
    if account.reconciliation is not None:
        print_line()
        show_reconciliation(account.reconciliation)


@app.command(short_help="Repair a batch and commit it.")
def repair(
    batch: _BatchArgument,
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
        batch_id = find_batch(runtime, batch)
        with shown_progress("checking and repairing", "files") as progress:
            found = repair_batch(runtime, batch_id, InProcessRouter(runtime.store), dry_run=dry_run, progress=progress)
    if as_json:
        show_document(found)
        return
    _show_repair(found, dry_run=dry_run)
    if dry_run and found.needed:
        note("nothing was changed; run the command without --dry-run to repair the batch")


def _show_repair(found: Repair, *, dry_run: bool) -> None:
    if not found.needed:
        print_line(
            f"Batch {found.batch_id} needs no repair: every file exists and is correct, "
            "and no delivery is settled twice."
        )
        return
    for file in found.unreadable:
        print_line(f"cannot be read: {file}")
    for file in found.wrong:
        print_line(f"contradicts the other files: {file}")
    for delivery in found.surplus:
        print_line(f"settled twice, or not a delivery of the batch: {delivery}")
    for file in found.rebuilt:
        print_line(f"{'would be rebuilt' if dry_run else 'rebuilt'}: {file}")
    parts = [plural(len(found.rebuilt), "file", "files") + " rebuilt"] if found.rebuilt else []
    if found.set_aside:
        parts.append(f"{plural(len(found.set_aside), 'file', 'files')} set aside")
    if found.settled_again:
        parts.append(f"settled again, with {plural(found.unproven, 'delivery', 'deliveries')} to try again")
    if dry_run:
        print_line(f"Batch {found.batch_id} would be repaired: {', '.join(parts)}.")
        return
    print_line(f"Batch {found.batch_id} repaired: {', '.join(parts)}; recorded in {found.record}.")
    if found.committed:
        print_line(f"It is committed. `eventbridge audit --batch {found.batch_id}` checks it again.")
    else:
        print_line("It is not committed yet: the next run of its runner continues it.")
