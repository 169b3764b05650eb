"""`eventbridge status --chunks` and `--failures`: the chunks of the newest batches, and the newest failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eventbridge.cli.output import print_line, show_json
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.table import show_table

if TYPE_CHECKING:
    from eventbridge.views.chunks import ChunkStatus

#: How many failures are shown.
_FAILURES = 20


def show_chunks(batches: int, *, failures: bool, as_json: bool) -> None:
    """Show the chunks of the newest batches, or the newest ones that failed, with their exceptions."""
    from eventbridge.views.chunks import chunk_failures, chunk_statuses

    with open_runtime(expects_ledger=True) as runtime:
        found = chunk_failures(runtime, limit=_FAILURES) if failures else chunk_statuses(runtime, batches=batches)
    if as_json:
        show_json(found)
    elif failures:
        _show_failures(found)
    else:
        _show(found)


def _show(found: Sequence[ChunkStatus]) -> None:
    show_table(
        "Chunks of the newest batches, times in UTC",
        ["batch", "chunk", "source", "state", "started", "seconds", "rows", "succeeded", "failed", "targets"],
        [_line(chunk) for chunk in found],
        ids={"batch"},
    )


def _show_failures(found: Sequence[ChunkStatus]) -> None:
    show_table(
        "Newest chunks with failures, times in UTC",
        ["batch", "chunk", "state", "ended", "succeeded", "failed", "exception", "last failed response"],
        [[c.batch_id, c.chunk_id, c.state, c.ended_at, c.succeeded, c.failed, c.error, c.last_failure] for c in found],
        ids={"batch"},
    )
    if found:
        print_line("Undelivered events are pending or dead-lettered: see `status` and `dead-letters list`.")


def _line(chunk: ChunkStatus) -> list[object]:
    times = (chunk.started_at, chunk.seconds)
    counts = (chunk.rows, chunk.succeeded, chunk.failed)
    return [chunk.batch_id, chunk.chunk_id, chunk.source, _state(chunk), *times, *counts, ", ".join(chunk.targets)]


def _state(chunk: ChunkStatus) -> str:
    return chunk.state if chunk.handed_out else "not handed out"
