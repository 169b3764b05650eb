"""Defines the command `status`, which shows lag, batches, chunks, pending deliveries, holds and unhealthy targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.output import JsonOption, cell_text, plural, print_line, show_document, show_table
from eventbridge.cli.runtime import open_runtime
from eventbridge.errors import error_lines

if TYPE_CHECKING:
    from datetime import datetime

    from eventbridge.model.batch import Batch
    from eventbridge.model.storage import StoreQuota
    from eventbridge.views.chunks import ChunkStatus
    from eventbridge.views.partitions import PartitionFlow, PartitionStatus
    from eventbridge.views.status import NewRunner, PendingStatus, Status, StreamingRunner


def show_status(
    batches: Annotated[int, typer.Option(min=0, metavar="N", help="How many of the newest batches to show.")] = 10,
    chunks: Annotated[bool, typer.Option("--chunks", help="Show the chunks of those batches instead.")] = False,
    failures: Annotated[bool, typer.Option("--failures", help="Show the newest chunks that failed, and why.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the status of every runner of the current rule files; changes nothing.

    Lag counts events that are not settled yet: in flight (taken by a batch) and available (not taken yet).
    """
    if chunks or failures:
        show_chunks(batches, failures=failures, as_json=as_json)
        return
    from eventbridge.views.status import status

    with open_runtime(expects_ledger=True) as runtime:
        found = status(runtime, batches=batches)
    if as_json:
        show_document(found)
    else:
        _show(found)


def _show(current: Status) -> None:
    gap = False
    for lines in _paragraphs(current):
        if gap:
            print_line()
        print_line("\n".join(lines))
        gap = True
    for (title, columns), rows in ((head, list(rows)) for head, rows in _tables(current)):
        if not rows:
            continue
        if gap:
            print_line()
        show_table(title, columns, rows, ids={"batch"})
        gap = True
    if not gap:
        print_line("No runner: the rule files have no rules, and nothing has run yet.")


def _paragraphs(current: Status) -> Iterator[list[str]]:
    """Yield the paragraphs before the tables, each as a list of lines."""
    if current.errors and current.rules_since is not None:
        since = cell_text(current.rules_since)
        head = f"Errors in the rule files; batches still use the rules in force since {since} UTC:"
        yield [head, *(f"  {line}" for line in error_lines(current.errors))]
    if current.ingestion_stop is not None:
        stop = current.ingestion_stop
        yield [f"No new batch has been planned since {cell_text(stop.since)} UTC: {stop.reason}."]
    if current.store_quota is not None:
        yield [_quota_line(current.store_quota)]
    if current.airflow_changes_dropped is not None:
        dropped = current.airflow_changes_dropped
        what = plural(dropped.changes, "change in Airflow", "changes in Airflow")
        yield [f"The listener has dropped {what} instead of publishing; last report: {cell_text(dropped.last_at)} UTC."]
    gaps = {q.runner: q.gap for q in reversed(current.partitions) if q.gap}
    runners = [
        *map(_never_ran, current.unregistered),
        *(f"The runner {stalled.runner} is stalled. {stalled.why}." for stalled in current.stalled),
        *map(_streaming, current.streaming),
        *reversed(gaps.values()),
    ]
    if runners:
        yield runners


def _streaming(runner: StreamingRunner) -> str:
    task = "no streaming task is running"
    if runner.holder:
        task = f"{runner.holder} is delivering its events, and holds the lease until {cell_text(runner.until)} UTC"
    return f"The runner {runner.runner} is in streaming mode: {task}."


def _tables(current: Status) -> Iterator[tuple[tuple[str, list[str]], Iterable[list[object]]]]:
    """Yield the title and columns of each table, with its rows; a table without rows is not shown."""
    yield (
        (
            "Partitions, in events",
            ["runner", "bus", "topic", "partition", "committed", "end", "lag", "in flight", "available"],
        ),
        (
            [q.runner, q.bus, q.partition.topic, q.partition.partition_id, q.committed, q.end, *_waiting(q)]
            for q in current.partitions
        ),
    )
    yield (
        (
            "Flow of the last five minutes, in events a second",
            ["runner", "bus", "topic", "partition", "published", "settled", "capacity", "time to catch up"],
        ),
        ([f.runner, f.bus, f.partition.topic, f.partition.partition_id, *_speeds(f)] for f in current.flows),
    )
    yield (
        ("Newest batches, times in UTC", ["batch", "kind", "runner", "state", "planned", "seconds"]),
        ([b.batch_id, b.kind, b.runner, b.state, b.planned_at, _seconds(b)] for b in current.batches),
    )
    yield ("Chunks of open batches", ["state", "chunks"]), map(list, sorted(current.chunks.items()))
    yield (
        ("Pending deliveries", ["rule", "target", "state", "reason", "deliveries", "next attempt, or hold reason"]),
        ([p.rule, p.target, p.state, p.reason, p.count, _next_attempt(p)] for p in current.pending),
    )
    yield (
        (
            "Deferred matches, times in UTC",
            ["rule", "state", "reason", "events", "since", "next attempt, or hold reason"],
        ),
        (
            [r.rule, r.state, r.reason, r.events, r.since, r.next_due_at or r.hold_reason]
            for r in current.deferred_matches
        ),
    )
    yield ("Rules on hold", ["rule", "since", "reason"]), ([r.rule, r.since, r.reason] for r in current.rules_on_hold)
    yield (
        ("Overrides, times in UTC", ["rule", "target", "kind", "value", "by", "since"]),
        ([s.rule, s.target, s.kind, s.value, s.set_by, s.since] for s in current.overrides),
    )
    yield (
        ("Pools with slots from rule files, times in UTC", ["pool", "file", "since", "Airflow", "since"]),
        ([p.pool, p.slots, p.applied_at, p.seen_slots, p.seen_at] for p in current.pools),
    )
    yield (
        ("Quotas of owners", ["owner", "published a second", "pending", "of", "bytes stored", "of"]),
        ([o.owner, o.published_per_second, o.pending, o.pending_max, o.stored, o.stored_bytes] for o in current.owners),
    )
    yield (
        ("Unhealthy targets, times in UTC", ["rule", "target", "state", "since", "until", "reason"]),
        ([t.rule, t.target, t.state, t.since, t.paused_until or t.until, t.reason] for t in current.targets),
    )


def _never_ran(new: NewRunner) -> str:
    """Return where a runner without a first run starts, and how many events wait for it."""
    waiting = "the number of waiting events is unknown" if new.waiting is None else _wait(new.waiting)
    start = f"The bus {new.bus} has `start_at: {cell_text(new.start_at)}`"
    return f"The runner {new.runner} has never run: {waiting}. {start}."


def _wait(events: int) -> str:
    return f"{plural(events, 'event waits', 'events wait')} for its first run"


def _quota_line(quota: StoreQuota) -> str:
    share = 100 * quota.used / quota.quota
    when = f"measured {cell_text(quota.counted_at)} UTC" if quota.counted_at else "older files are not measured yet"
    return f"The store holds {quota.used:,} of {quota.quota:,} bytes ({share:.0f} %); {when}."


def _waiting(partition: PartitionStatus) -> list[object]:
    """Return lag, in flight and available; each a number or `unknown`."""
    return [
        "unknown" if number is None else number for number in (partition.lag, partition.in_flight, partition.available)
    ]


def _speeds(flow: PartitionFlow) -> list[object]:
    """Return published, settled, capacity and the time until the lag is gone; `unknown` for an unknown value."""
    capacity = "unknown" if flow.capacity is None else flow.capacity
    gone = "it grows" if flow.grows else "unknown"
    if flow.drains_in_seconds is not None:
        gone = _rough(flow.drains_in_seconds)
    return [flow.published, flow.settled, capacity, gone]


def _rough(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _next_attempt(row: PendingStatus) -> datetime | str | None:
    """Return when deliveries are due, or why they are on hold."""
    from eventbridge.model.queue import IN_QUEUE

    if row.reason == IN_QUEUE and row.state == "scheduled":
        return "when a consumer receives it"
    return row.next_due_at or row.hold_reason


def _seconds(batch: Batch) -> float | None:
    """Return how long a batch took from planning to commit."""
    return (batch.committed_at - batch.planned_at).total_seconds() if batch.committed_at else None


#: The maximum number of failed chunks to show.
_MAX_FAILURES = 20


def show_chunks(batches: int, *, failures: bool, as_json: bool) -> None:
    """Show the chunks of the newest batches, or the newest chunks that failed, with their exceptions."""
    from eventbridge.views.chunks import chunk_failures, chunk_statuses

    with open_runtime(expects_ledger=True) as runtime:
        found = chunk_failures(runtime, limit=_MAX_FAILURES) if failures else chunk_statuses(runtime, batches=batches)
    if as_json:
        show_document(found)
    elif failures:
        _show_failed_chunks(found)
    else:
        _show_chunk_rows(found)


def _show_chunk_rows(chunks: Sequence[ChunkStatus]) -> None:
    show_table(
        "Chunks of the newest batches, times in UTC",
        ["batch", "chunk", "source", "state", "started", "seconds", "rows", "succeeded", "failed", "targets"],
        [_chunk_row(chunk) for chunk in chunks],
        ids={"batch"},
    )


def _show_failed_chunks(chunks: Sequence[ChunkStatus]) -> None:
    show_table(
        "Newest chunks with failures, times in UTC",
        ["batch", "chunk", "state", "ended", "succeeded", "failed", "exception", "last failed response"],
        [[c.batch_id, c.chunk_id, c.state, c.ended_at, c.succeeded, c.failed, c.error, c.last_failure] for c in chunks],
        ids={"batch"},
    )
    if chunks:
        print_line("Undelivered events are pending or dead-lettered: see `status` and `dead-letters list`.")


def _chunk_row(chunk: ChunkStatus) -> list[object]:
    times = (chunk.started_at, chunk.seconds)
    counts = (chunk.rows, chunk.succeeded, chunk.failed)
    return [
        chunk.batch_id,
        chunk.chunk_id,
        chunk.source,
        _chunk_state(chunk),
        *times,
        *counts,
        ", ".join(chunk.targets),
    ]


def _chunk_state(chunk: ChunkStatus) -> str:
    return chunk.state if chunk.handed_out else "not handed out"
