"""Writes the sentences that a batch's tasks log after each stage, from the ledger and the store.

If a batch has no failures, no file of the store is read for them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.configuration import conf

from eventbridge.errors import StoreError
from eventbridge.model.file_detail import LandedRange

if TYPE_CHECKING:
    from eventbridge.delivery.push import PushReport
    from eventbridge.model.pending import PendingDeliveries
    from eventbridge.runtime.runtime import Runtime
    from eventbridge.streaming.task import StreamingSummary

#: The maximum number of dead letter files of a batch to read for the targets, reasons and events that a sentence names.
_MAX_FILES = 3


@dataclass(frozen=True)
class TaskReport:
    """Text that says what a task did. `is_warning` is set if an operator should read it."""

    text: str
    is_warning: bool = False


def push_report(runtime: Runtime, report: PushReport, batch_id: str, chunk_id: int) -> TaskReport:
    """Return the result of a push for each target, or the reason why nothing was sent."""
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
            _failures(each.dead_lettered, why.get((each.rule, each.target, "dead_lettered"), ())),
            _failures(each.retried, why.get((each.rule, each.target, "retry_scheduled"), ())),
        )
        for each in lines
    )
    if not failed:
        return TaskReport(text)
    return TaskReport(f"{text}. {page_address(f'batches/{batch_id}/chunks/{chunk_id}')}", is_warning=True)


def landing_report(runtime: Runtime, batch_id: str) -> TaskReport:
    """Return how many events a batch landed: valid, duplicate and malformed ones."""
    details = [file.detail for file in runtime.ledger.files.list_for_batch(batch_id, "buffer")]
    landed = [each for each in details if isinstance(each, LandedRange)]
    kinds = {kind: sum(getattr(each, kind) for each in landed) for kind in ("valid", "duplicate", "malformed")}
    named = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    return TaskReport(
        f"batch {batch_id}: {_plural(sum(kinds.values()), 'event', 'events')} landed: {named}",
        bool(kinds["malformed"]),
    )


def routing_report(runtime: Runtime, batch_id: str, pushes: int) -> TaskReport:
    """Return how many deliveries a batch has, and how many pushes deliver them."""
    chunks = runtime.ledger.chunks.list_for_batch(batch_id)
    deliveries = sum(piece.count for chunk in chunks for piece in chunk.pieces)
    if not deliveries:
        return TaskReport(f"batch {batch_id}: no rule matches its events")
    withheld = len(chunks) - pushes
    rest = f"; {_plural(withheld, 'chunk', 'chunks')} left for later batches" if withheld > 0 else ""
    sizes = f"{_plural(deliveries, 'delivery', 'deliveries')}, {_plural(pushes, 'push', 'pushes')}"
    return TaskReport(f"batch {batch_id}: {sizes}{rest}")


def dead_letters_report(runtime: Runtime, batch_id: str) -> TaskReport:
    """Return the numbers and reasons of a batch's dead letters, by target."""
    lines = _dead(runtime, batch_id)
    if not lines:
        return TaskReport(f"batch {batch_id}: no dead letters")
    return TaskReport(f"{sentence_about(lines)}. {page_address(f'batches/{batch_id}')}", is_warning=True)


def pending_report(runtime: Runtime, batch_id: str) -> TaskReport:
    """Return the number of pending deliveries of a batch by target, with the time until which they wait, or the
    reason."""
    lines = _waiting(runtime, batch_id)
    if not lines:
        return TaskReport(f"batch {batch_id}: no pending deliveries")
    return TaskReport(sentence_about(lines), is_warning=True)


def commit_report(runtime: Runtime, batch_id: str) -> TaskReport:
    """Return the note for the run of a committed batch: its dead letters and pending deliveries."""
    undelivered = _undelivered(runtime, [batch_id])
    if not undelivered:
        return TaskReport(f"batch {batch_id} is committed; no dead letters, nothing pending")
    return TaskReport(
        f"batch {batch_id} is committed. {undelivered}. {page_address(f'batches/{batch_id}')}", is_warning=True
    )


def streaming_task_report(runtime: Runtime, runner: str, since: datetime, done: StreamingSummary) -> TaskReport:
    """Return the note for a streaming task's run: its batches and events, and what it did not deliver.

    Dead letters and pending deliveries are those of the runner's normal batches that were planned since `since`.
    """
    did = f"{_plural(done.batches, 'batch', 'batches')} committed, {_plural(done.events, 'event', 'events')} read"
    text = f"the streaming task of runner {runner} has ended: {did}"
    if done.backlog:
        text += "; the following tasks deliver the backlog"
    batches = [
        each
        for each in runtime.ledger.batches.list_planned_between(since, runtime.ledger.now())
        if each.runner == runner
    ]
    undelivered = _undelivered(runtime, [each.batch_id for each in batches if each.kind == "normal"])
    return (
        TaskReport(f"{text}. {undelivered}. {page_address('batches')}", is_warning=True)
        if undelivered
        else TaskReport(text)
    )


def _undelivered(runtime: Runtime, batch_ids: Sequence[str]) -> str:
    """Return text about the dead letters and pending deliveries of batches, "" if there are none."""
    dead = _together([line for batch_id in batch_ids for line in _dead(runtime, batch_id)])
    waiting = _together([line for batch_id in batch_ids for line in _waiting(runtime, batch_id)])
    parts = []
    if dead:
        parts.append(f"{sum(each.dead.count for each in dead):,} dead-lettered: {sentence_about(dead)}")
    if waiting:
        count = sum(each.waiting.count for each in waiting)
        parts.append(f"{count:,} pending: {sentence_about(waiting)}")
    return ". ".join(parts)


def _together(lines: Sequence[TargetLine]) -> list[TargetLine]:
    """Return one line per target, with the total counts, and with the reason and events of the target's first line."""
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


def _plural(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _why_nothing(runtime: Runtime, batch_id: str, chunk_id: int) -> str:
    batch = runtime.ledger.batches.get(batch_id)
    nothing = f"nothing was sent for chunk {chunk_id} of batch {batch_id}"
    again = "To send its events again, start a replay"
    if batch.state in ("settling", "committed"):
        return f"{nothing}: the batch is already settled. {again}"
    if batch.deadline_at is not None and runtime.ledger.now() >= batch.deadline_at:
        return (
            f"{nothing}: its deadline was {batch.deadline_at:%H:%M:%S} UTC; eventbridge_retry_deliveries sends the rest"
        )
    if batch.state != "routed":
        return f"{nothing}: the batch is not routed yet"
    return f"{nothing}: another push has already sent it. {again}"


def _failures(count: int, rows: Iterable[Mapping[str, Any]]) -> Failures:
    found = list(rows)
    whys = Counter(_why(row) for row in found)
    why = whys.most_common(1)[0][0] if whys else ""
    return Failures(count, why, tuple(row["event_id"] for row in found))


def _why(row: Mapping[str, Any]) -> str:
    """Return why an attempt failed, without text from the response, which may contain the payload."""
    if row["code"]:
        return f"HTTP {row['code']}"
    return row["error_class"] or ""


def _attempts(runtime: Runtime, batch_id: str, chunk_id: int) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """Return the attempts on the first page of a chunk, by rule, target and outcome. Failed attempts come first."""
    from eventbridge.views.chunks import chunk_account

    found: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for each in chunk_account(runtime, batch_id, chunk_id).attempts:
        row = {**each.row, "event_id": each.event_id}
        found[row["rule"], row["target"], row["outcome"]].append(row)
    return found


def _dead(runtime: Runtime, batch_id: str) -> list[TargetLine]:
    """Return the dead letters of a batch by target, as far as the first files name the targets.

    The dead letters in other files, and in files that cannot be read, are counted in a last line without a reason.
    """
    from eventbridge.store.parquet import read_table

    files = [file for file in runtime.ledger.files.list_for_batch(batch_id, "dead_letter") if file.path is not None]
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for file in files[:_MAX_FILES]:
        assert file.path is not None
        try:
            table = read_table(runtime.store, file.path, ["rule", "target", "bus", "event_id", "reason", "attempts"])
        except StoreError:  # a log line must not fail the task, and `eventbridge audit` reports the file
            continue
        for row in table.to_pylist():
            name = f"{row['rule']}/{row['target']}" if row["rule"] is not None else f"bus {row['bus']}"
            last = row["attempts"][-1] if row["attempts"] else {"code": None, "error_class": row["reason"]}
            why = {"code": last["code"], "error_class": last["error_class"]}
            rows[name].append({"event_id": row["event_id"] or "", **why})
    lines = [TargetLine(name, len(each), dead=_failures(len(each), each)) for name, each in rows.items()]
    unread = sum(file.rows for file in files) - sum(each.total for each in lines)
    return [*lines, TargetLine("other dead letters", unread, dead=Failures(unread))] if unread else lines


def _waiting(runtime: Runtime, batch_id: str) -> list[TargetLine]:
    by_target: dict[str, list[PendingDeliveries]] = defaultdict(list)
    for row in (each for each in runtime.ledger.pending.list_for_batch(batch_id) if each.state != "closed"):
        by_target[f"{row.rule}/{row.target}"].append(row)
    lines = []
    for name, rows in by_target.items():
        count = sum(row.count for row in rows)
        hold_reason = next((row.hold_reason for row in rows if row.hold_reason), "")
        why = (
            f"on hold: {short(hold_reason)}"
            if hold_reason
            else f"next attempt from {min(row.due_at for row in rows):%H:%M:%S} UTC"
        )
        lines.append(TargetLine(name, count, waiting=Failures(count, why)))
    return lines


#: The maximum number of targets in a sentence, of events for each target, and of characters in a name or reason.
MAX_TARGETS, MAX_EVENTS = 5, 3
_MAX_TEXT_LENGTH = 80


@dataclass(frozen=True)
class Failures:
    """Those deliveries of one target that failed or are pending.

    `count` is the number of all of them, `why` is the most common reason, and `events` has the ids of the events of
    some.
    """

    count: int
    why: str = ""
    events: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = [short(each) for each in sorted(set(self.events)) if each][:MAX_EVENTS]
        parts = [short(self.why)] if self.why else []
        if named:
            more = ", ..." if self.count > len(named) else ""
            parts.append(f"{'event' if len(named) == 1 and not more else 'events'} {', '.join(named)}{more}")
        return "; ".join(parts)


@dataclass(frozen=True)
class TargetLine:
    """The deliveries of one target: how many there are, how many are delivered, and why the others are not."""

    name: str  # <rule>/<target>, `bus <bus>` for malformed or unroutable events, or `other dead letters`
    total: int
    delivered: int = 0
    dead: Failures = Failures(0)
    waiting: Failures = Failures(0)

    def __str__(self) -> str:
        if self.delivered == self.total:
            return f"{short(self.name)}: {self.total:,} of {self.total:,} delivered"
        parts = [f"{self.delivered:,} of {self.total:,} delivered"] if self.delivered else []
        for what, failures in (("dead-lettered", self.dead), ("to be tried again", self.waiting)):
            if failures.count:
                why = f", {failures}" if str(failures) else ""
                parts.append(f"{failures.count:,} of {self.total:,} {what}{why}")
        unsent = self.total - self.delivered - self.dead.count - self.waiting.count
        if unsent:
            parts.append(f"{unsent:,} of {self.total:,} not sent")
        return f"{short(self.name)}: {'; '.join(parts)}"

    @property
    def is_delivered(self) -> bool:
        """Return whether every delivery has succeeded."""
        return self.delivered == self.total


def sentence_about(lines: Iterable[TargetLine]) -> str:
    """Return one sentence for each of the first targets, ordered by failures, and one with the totals of the others.

    Targets with the most dead letters come first, then those with the most pending deliveries.
    """
    ordered = sorted(lines, key=lambda each: (each.is_delivered, -each.dead.count, -each.waiting.count, each.name))
    rest = ordered[MAX_TARGETS:]
    parts = [str(each) for each in ordered[:MAX_TARGETS]]
    if rest:
        numbers = [
            f"{sum(each.delivered for each in rest):,} of {sum(each.total for each in rest):,} delivered",
            *_rest_line("dead-lettered", [each.dead for each in rest]),
            *_rest_line("to be tried again", [each.waiting for each in rest]),
        ]
        parts.append(f"{len(rest):,} more targets: {', '.join(numbers)}")
    return ". ".join(parts)


def short(text: str) -> str:
    """Return text of external origin in a form that fits into a sentence.

    Line breaks and control characters are replaced, and long text is truncated.
    """
    shown = "".join(
        each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text[: _MAX_TEXT_LENGTH + 1]
    )
    return shown if len(text) <= _MAX_TEXT_LENGTH else f"{shown[: _MAX_TEXT_LENGTH - 3]}..."


def _rest_line(noun: str, groups: Sequence[Failures]) -> list[str]:
    count = sum(each.count for each in groups)
    return [f"{count:,} {noun}"] if count else []


def page_path(path: str) -> str:
    """Return the path at which Airflow shows a part of EventBridge's page, such as `batches/ID`."""
    base = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
    return f"{base}/plugin/eventbridge{base}/eventbridge/page/{path}"


def page_address(path: str) -> str:
    """Return the address for a log line: `page_path`, with scheme and host if Airflow's `[api] base_url` has them."""
    url = urlsplit(conf.get("api", "base_url", fallback=""))
    return f"{url.scheme}://{url.netloc}{page_path(path)}" if url.netloc else page_path(path)
