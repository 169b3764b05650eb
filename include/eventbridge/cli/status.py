"""`eventbridge status`: lag, batches, chunks, parked deliveries, targets that are not well."""

from __future__ import annotations

from typing import Annotated

import typer

from eventbridge.cli.output import JsonOption, plain, show_json, show_table
from eventbridge.cli.workplace import workplace
from eventbridge.stages.status import Status, status


def show_status(
    batches: Annotated[int, typer.Option(help="How many of the newest batches to show.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Show how every runner stands: lag, in flight, available; batches; chunks; parked; degraded targets."""
    with workplace() as work:
        found = status(work, batches=batches)
    if as_json:
        queues = [
            plain(each) | {"lag": each.lag, "in_flight": each.in_flight, "available": each.available}
            for each in found.queues
        ]
        show_json(plain(found) | {"queues": queues})
    else:
        _show(found)


def _show(found: Status) -> None:
    for runner in found.unregistered:
        typer.echo(f"runner {runner} has never run")
    show_table(
        "Queues",
        ["runner", "bus", "topic", "queue", "committed", "end", "lag", "in flight", "available"],
        [
            [q.runner, q.bus, q.queue.topic, q.queue.queue_id, q.committed, q.end, q.lag, q.in_flight, q.available]
            for q in found.queues
        ],
    )
    show_table(
        "Newest batches",
        ["batch", "kind", "runner", "state", "planned", "committed"],
        [[b.batch_id, b.kind, b.runner, b.state, b.planned_at, b.committed_at] for b in found.batches],
    )
    show_table("Chunks of open batches", ["state", "chunks"], sorted(found.chunks.items()))
    show_table(
        "Parked",
        ["rule", "target", "state", "reason", "deliveries", "next due"],
        [[p.rule, p.target, p.state, p.reason, p.count, p.next_due_at] for p in found.parked],
    )
    show_table(
        "Targets not well",
        ["rule", "target", "state", "since", "reason"],
        [[t.rule, t.target, t.state, t.since, t.reason] for t in found.targets],
    )
