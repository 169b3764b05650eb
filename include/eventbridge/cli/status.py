"""`eventbridge status`: lag, batches, chunks, parked deliveries, references, rules and targets that are not well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.chunks import show_chunks
from eventbridge.cli.output import JsonOption, say, show_json
from eventbridge.cli.runtime import runtime
from eventbridge.cli.table import cell_text, show_table

if TYPE_CHECKING:
    from eventbridge.decision.flow import Flow
    from eventbridge.model.batch import Batch
    from eventbridge.model.store_size import StoreQuota
    from eventbridge.stages.operate.queue_status import QueueStatus
    from eventbridge.stages.operate.status import Status


def show_status(
    batches: Annotated[int, typer.Option(min=0, metavar="N", help="How many of the newest batches to show.")] = 10,
    chunks: Annotated[bool, typer.Option("--chunks", help="Show the chunks of those batches instead.")] = False,
    failures: Annotated[bool, typer.Option("--failures", help="Show the newest chunks that failed, and why.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show how every runner of today's rule files stands; changes nothing.

    Lag is what is not settled yet: in flight (a batch has taken it) and available (no batch has).
    """
    if chunks or failures:
        show_chunks(batches, failures=failures, as_json=as_json)
        return
    from eventbridge.stages.operate.status import status, status_fields

    with runtime(looking=True) as work:
        found = status(work, batches=batches)
    if as_json:
        show_json(status_fields(found))
    else:
        _show(found)


def _show(found: Status) -> None:
    if found.mistakes and found.rules_since is not None:
        since = cell_text(found.rules_since)
        say(f"Mistakes in the rule files; batches go on with the rules in force since {since} UTC:")
        for mistake in found.mistakes:
            say(f"  {mistake}")
        say()
    if found.intake_stop is not None:
        stop = found.intake_stop
        say(f"No new batch is planned since {cell_text(stop.since)} UTC: {stop.reason}.")
        say()
    if found.store_quota is not None:
        say(_of_store(found.store_quota))
        say()
    for new in found.unregistered:
        say(f"The runner {new.runner} has never run; it will start at {cell_text(new.start_at)} of the bus {new.bus}.")
    for stalled in found.stalled:
        say(f"The runner {stalled.runner} takes nothing. {stalled.why}.")
    for each in found.express:
        said = (
            f"{each.holder} delivers its events, by a lease until {cell_text(each.until)} UTC that it renews"
            if each.holder
            else "no shift is under way"
        )
        say(f"The runner {each.runner} is express: {said}.")
    gaps = {q.runner: q.gap for q in reversed(found.queues) if q.gap}
    for gap in reversed(gaps.values()):
        say(gap)
    if found.unregistered or found.stalled or found.express or gaps:
        say()
    show_table(
        "Queues, in events",
        ["runner", "bus", "topic", "queue", "committed", "end", "lag", "in flight", "available"],
        [[q.runner, q.bus, q.queue.topic, q.queue.queue_id, q.committed, q.end, *_waiting(q)] for q in found.queues],
    )
    say()
    show_table(
        "Flow of the last five minutes, in events a second",
        ["runner", "bus", "topic", "queue", "published", "settled", "capacity", "lag is gone in"],
        [[f.runner, f.bus, f.queue.topic, f.queue.queue_id, *_speeds(f.flow)] for f in found.flows],
    )
    say()
    show_table(
        "Newest batches, times in UTC",
        ["batch", "kind", "runner", "state", "planned", "seconds"],
        [[b.batch_id, b.kind, b.runner, b.state, b.planned_at, _seconds(b)] for b in found.batches],
        ids={"batch"},
    )
    say()
    show_table("Chunks of open batches", ["state", "chunks"], sorted(found.chunks.items()))
    say()
    show_table(
        "Parked deliveries",
        ["rule", "target", "state", "reason", "deliveries", "next due, or held for"],
        [[p.rule, p.target, p.state, p.reason, p.count, p.next_due_at or p.held] for p in found.parked],
    )
    say()
    show_table(
        "References: events that are routed later",
        ["rule", "state", "reason", "events", "since", "next due, or held for"],
        [[r.rule, r.state, r.reason, r.events, r.since, r.next_due_at or r.held] for r in found.references],
    )
    say()
    show_table("Held rules", ["rule", "since", "reason"], [[r.rule, r.since, r.reason] for r in found.held_rules])
    say()
    show_table(
        "Said by operators, times in UTC",
        ["rule", "target", "word", "value", "by", "since"],
        [[s.rule, s.target, s.word, s.value, s.said_by, s.since] for s in found.operators],
    )
    say()
    show_table(
        "Pools that rule files give slots, times in UTC",
        ["pool", "file", "since", "Airflow", "since"],
        [[p.pool, p.slots, p.applied_at, p.seen_slots, p.seen_at] for p in found.pools],
    )
    say()
    if found.owners:
        show_table(
            "Quotas of owners",
            ["owner", "published a second", "parked", "of", "bytes stored", "of"],
            [[o.owner, o.published_per_second, o.parked, o.parked_max, o.stored, o.stored_bytes] for o in found.owners],
        )
        say()
    show_table(
        "Targets that are not well",
        ["rule", "target", "state", "since", "reason"],
        [[t.rule, t.target, t.state, t.since, t.reason] for t in found.targets],
    )


def _of_store(found: StoreQuota) -> str:
    share = 100 * found.held / found.quota
    when = (
        f"measured {cell_text(found.counted_at)} UTC" if found.counted_at else "what was there before is not measured"
    )
    return f"The store holds {found.held:,} of {found.quota:,} bytes ({share:.0f} %); {when}."


def _waiting(queue: QueueStatus) -> list[object]:
    """Return lag, in flight and available, as far as they are known."""
    return ["?" if number is None else number for number in (queue.lag, queue.in_flight, queue.available)]


def _speeds(flow: Flow) -> list[object]:
    """Return published, settled, capacity and when the lag is gone, as far as they are known."""
    capacity = "?" if flow.capacity is None else flow.capacity
    gone = "it grows" if flow.grows else "?"
    if flow.drains_in_seconds is not None:
        gone = _rough(flow.drains_in_seconds)
    return [flow.published, flow.settled, capacity, gone]


def _rough(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _seconds(batch: Batch) -> float | None:
    """Return how long a batch took from planning to commit."""
    return (batch.committed_at - batch.planned_at).total_seconds() if batch.committed_at else None
