"""Defines the command group `queues`, which lists and shows the queues from which consumers receive deliveries."""

from __future__ import annotations

from typing import Annotated

import typer

from eventbridge.cli.output import JsonOption, print_line, show_document, show_fields, show_table
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.suggestion import Group

app = typer.Typer(cls=Group, help="List and show pull queues.", no_args_is_help=True)


@app.command("list", short_help="List the queues of the rule files.")
def list_queues(as_json: JsonOption = False) -> None:
    """List the queues of the current rule files: how many deliveries wait for a consumer, how many are in flight, and
    since when the oldest one can be received."""
    from eventbridge.views.queues import queue_statuses

    with open_runtime(expects_ledger=True) as runtime:
        found = queue_statuses(runtime)
    if as_json:
        show_document(found)
        return
    show_table(
        "Queues, times in UTC",
        ["queue", "targets", "waiting", "in flight", "oldest"],
        [[q.queue, len(q.targets), q.waiting, q.received, q.oldest_ready_at] for q in found],
    )


@app.command(short_help="Show one queue with its targets.")
def show(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Name of a queue, the `queue` of a target.")],
    as_json: JsonOption = False,
) -> None:
    """Show one queue, and the deliveries of each of its targets by what they wait for."""
    from eventbridge.views.queues import queue_by_target, queue_status

    with open_runtime(expects_ledger=True) as runtime:
        found, by_target = queue_status(runtime, queue), queue_by_target(runtime, queue)
    if as_json:
        show_document(found)
        return
    show_fields(
        [
            ("queue", found.queue),
            ("waiting", f"{found.waiting:,}"),
            ("in flight", f"{found.received:,}"),
            ("oldest", found.oldest_ready_at),
        ]
    )
    print_line()
    show_table(
        "Deliveries, times in UTC",
        ["target", "ready", "delayed", "blocked", "received", "finished", "oldest"],
        [[*q.targets, q.ready, q.delayed, q.blocked, q.received, q.finished, q.oldest_ready_at] for q in by_target],
    )
