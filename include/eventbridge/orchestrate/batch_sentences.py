"""What the tasks of a batch log of it, read from ledger and store once a stage is over; a good batch costs little."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from eventbridge.errors import StoreError
from eventbridge.model.landed import LandedRange
from eventbridge.orchestrate.page_address import page_address
from eventbridge.orchestrate.sentences import TargetLine, Trouble, sentence_about, short

if TYPE_CHECKING:
    from eventbridge.model.pending import PendingDeliveries
    from eventbridge.stages.operate.streaming import StreamingSummary
    from eventbridge.stages.push.stage import PushReport
    from eventbridge.stages.runtime.runtime import Runtime

#: Files of dead letters that are read for the reasons and events that a sentence names.
_MOST_FILES = 3


@dataclass(frozen=True)
class TaskReport:
    """One sentence of what a task did, and whether a person may want to know: then it is a warning."""

    text: str
    is_trouble: bool = False


def of_push(runtime: Runtime, report: PushReport, batch_id: str, chunk_id: int) -> TaskReport:
    """Return what a push came to by target; where nothing was sent, why not."""
    lines = [each for each in report.targets if each.total]
    if not report.claimed or not lines:
        return TaskReport(_why_nothing(runtime, batch_id, chunk_id))
    failed = {(each.rule, each.target) for each in lines if each.delivered < each.total}
    why = _attempts(runtime, batch_id, chunk_id) if failed else {}
    text = sentence_about(
        TargetLine(
            f"{each.rule}/{each.target}",
            each.total,
            each.delivered,
            _trouble(each.dead_lettered, why.get((each.rule, each.target, "dead_lettered"), ())),
            _trouble(each.retried, why.get((each.rule, each.target, "retry_scheduled"), ())),
        )
        for each in lines
    )
    if not failed:
        return TaskReport(text)
    return TaskReport(f"{text}. {page_address(f'batches/{batch_id}/chunks/{chunk_id}')}", is_trouble=True)


def of_landing(runtime: Runtime, batch_id: str) -> TaskReport:
    """Return how many events a batch landed, and of what kinds."""
    details = [file.detail for file in runtime.ledger.files(batch_id, "buffer")]
    landed = [each for each in details if isinstance(each, LandedRange)]
    kinds = {kind: sum(getattr(each, kind) for each in landed) for kind in ("valid", "duplicate", "malformed")}
    named = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    return TaskReport(
        f"batch {batch_id}: {_counted(sum(kinds.values()), 'event', 'events')} landed: {named}",
        bool(kinds["malformed"]),
    )


def of_routing(runtime: Runtime, batch_id: str, pushes: int) -> TaskReport:
    """Return how many deliveries a batch came to, and how many pushes deliver them."""
    chunks = runtime.ledger.chunks(batch_id)
    deliveries = sum(piece.count for chunk in chunks for piece in chunk.pieces)
    if not deliveries:
        return TaskReport(f"batch {batch_id}: no rule wants an event of it")
    waits = len(chunks) - pushes
    rest = (
        f"; {_counted(waits, 'chunk', 'chunks')} not handed out: no free slot, or a target that is on hold"
        if waits > 0
        else ""
    )
    sizes = f"{_counted(deliveries, 'delivery', 'deliveries')}, {_counted(pushes, 'push', 'pushes')}"
    return TaskReport(f"batch {batch_id}: {sizes}{rest}")


def of_dead_letters(runtime: Runtime, batch_id: str) -> TaskReport:
    """Return what a batch dead-lettered, by target."""
    lines = _dead(runtime, batch_id)
    if not lines:
        return TaskReport(f"batch {batch_id}: nothing is dead-lettered")
    return TaskReport(f"{sentence_about(lines)}. {page_address(f'batches/{batch_id}')}", is_trouble=True)


def of_pending(runtime: Runtime, batch_id: str) -> TaskReport:
    """Return what of a batch waits for another attempt, by target, and for what."""
    lines = _waiting(runtime, batch_id)
    if not lines:
        return TaskReport(f"batch {batch_id}: nothing waits for another attempt")
    return TaskReport(sentence_about(lines), is_trouble=True)


def of_commit(runtime: Runtime, batch_id: str) -> TaskReport:
    """Return what of a committed batch is dead-lettered or waits: the note of its run."""
    trouble = _trouble_of(runtime, [batch_id])
    if not trouble:
        return TaskReport(f"batch {batch_id} is committed; nothing is dead-lettered, nothing waits")
    return TaskReport(
        f"batch {batch_id} is committed. {trouble}. {page_address(f'batches/{batch_id}')}", is_trouble=True
    )


def of_streaming_task(runtime: Runtime, runner: str, since: datetime, done: StreamingSummary) -> TaskReport:
    """Return what a streaming task that began then did, and what of its batches is dead-lettered or waits: the note of
    its run.
    """
    did = f"{_counted(done.batches, 'batch', 'batches')} committed, {_counted(done.events, 'event', 'events')} read"
    text = f"the streaming task of runner {runner} is over: {did}"
    if done.backlog:
        text += "; more waits than it delivers soon, so the tasks after it deliver that"
    batches = [each for each in runtime.ledger.batches_between(since, runtime.ledger.now()) if each.runner == runner]
    trouble = _trouble_of(runtime, [each.batch_id for each in batches if each.kind == "normal"])
    return TaskReport(f"{text}. {trouble}. {page_address('batches')}", is_trouble=True) if trouble else TaskReport(text)


def _trouble_of(runtime: Runtime, batch_ids: Sequence[str]) -> str:
    """Return what of batches is dead-lettered, and what waits; "": nothing."""
    dead = _together([line for batch_id in batch_ids for line in _dead(runtime, batch_id)])
    waiting = _together([line for batch_id in batch_ids for line in _waiting(runtime, batch_id)])
    parts = []
    if dead:
        parts.append(f"{sum(each.dead.count for each in dead):,} dead-lettered: {sentence_about(dead)}")
    if waiting:
        count = sum(each.waiting.count for each in waiting)
        parts.append(f"{count:,} wait for another attempt: {sentence_about(waiting)}")
    return ". ".join(parts)


def _together(lines: Sequence[TargetLine]) -> list[TargetLine]:
    """Return one line for each target, with the reason and the events of its first."""
    found: dict[str, TargetLine] = {}
    for line in lines:
        if (first := found.get(line.name)) is not None:
            line = replace(
                line,
                total=first.total + line.total,
                dead=replace(first.dead, count=first.dead.count + line.dead.count),
                waiting=replace(first.waiting, count=first.waiting.count + line.waiting.count),
            )
        found[line.name] = line
    return list(found.values())


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _why_nothing(runtime: Runtime, batch_id: str, chunk_id: int) -> str:
    batch = runtime.ledger.batch(batch_id)
    nothing = f"nothing is sent of chunk {chunk_id} of batch {batch_id}"
    if batch.state in ("settling", "committed"):
        return f"{nothing}: it was sent already by another run, and the batch is settled; redrive to send again"
    if batch.deadline_at is not None and runtime.ledger.now() >= batch.deadline_at:
        ended = f"{batch.deadline_at:%H:%M:%S} UTC"
        return f"{nothing}: its time was over at {ended}; eventbridge_retry_deliveries sends the rest"
    if batch.state != "routed":
        return f"{nothing}: the batch is not routed yet"
    return f"{nothing}: it was sent already by another run; redrive to send again"


def _trouble(count: int, rows: Iterable[Mapping[str, Any]]) -> Trouble:
    found = list(rows)
    whys = Counter(_why(row) for row in found)
    why = whys.most_common(1)[0][0] if whys else ""
    return Trouble(count, why, tuple(row["event_id"] for row in found))


def _why(row: Mapping[str, Any]) -> str:
    """Return in words why an attempt failed: no text of a response, which may show what was sent."""
    if row["code"]:
        return f"HTTP {row['code']}"
    return row["error_class"] or ""


def _attempts(runtime: Runtime, batch_id: str, chunk_id: int) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """Return attempts of a chunk that did not deliver, by rule, target and outcome: those that a page shows first."""
    from eventbridge.stages.operate.chunk_account import chunk_account

    found: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for each in chunk_account(runtime, batch_id, chunk_id).attempts:
        row = {**each.row, "event_id": each.event_id}
        found[row["rule"], row["target"], row["outcome"]].append(row)
    return found


def _dead(runtime: Runtime, batch_id: str) -> list[TargetLine]:
    """Return what a batch dead-lettered: counts of all that it read, reasons and events of the first files."""
    from eventbridge.store.parquet import read_table

    files = [file for file in runtime.ledger.files(batch_id, "dead_letter") if file.path is not None]
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for file in files[:_MOST_FILES]:
        assert file.path is not None
        try:
            table = read_table(runtime.store, file.path, ["rule", "target", "bus", "event_id", "reason", "attempts"])
        except StoreError:  # `eventbridge audit` names it; a sentence is not worth a failed task
            continue
        for row in table.to_pylist():
            name = f"{row['rule']}/{row['target']}" if row["rule"] is not None else f"bus {row['bus']}"
            last = row["attempts"][-1] if row["attempts"] else {"code": None, "error_class": row["reason"]}
            why = {"code": last["code"], "error_class": last["error_class"]}
            rows[name].append({"event_id": row["event_id"] or "", **why})
    lines = [TargetLine(name, len(each), dead=_trouble(len(each), each)) for name, each in rows.items()]
    unread = sum(file.rows for file in files) - sum(each.total for each in lines)
    return [*lines, TargetLine("other dead letters", unread, dead=Trouble(unread))] if unread else lines


def _waiting(runtime: Runtime, batch_id: str) -> list[TargetLine]:
    by_target: dict[str, list[PendingDeliveries]] = defaultdict(list)
    for row in (each for each in runtime.ledger.pending_of(batch_id) if each.state != "closed"):
        by_target[f"{row.rule}/{row.target}"].append(row)
    lines = []
    for name, rows in by_target.items():
        count = sum(row.count for row in rows)
        held = next((row.held for row in rows if row.held), "")
        why = f"on hold: {short(held)}" if held else f"next attempt from {min(row.due_at for row in rows):%H:%M:%S} UTC"
        lines.append(TargetLine(name, count, waiting=Trouble(count, why)))
    return lines
