"""Sends deliveries to a target in spans.

The deliveries of a span are sent together, get one response, and become pending together; a target that stores the rest
may reject single ones for good. A span is a piece of a chunk
as the stage route wrote it; `settle.pending.SpanPending` keeps it in one piece while it is pending. The name of a span
is derived from its rule, target, delivery file and rows, so that a push that sends it again writes the same bytes to
the same place.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.delivery.outstanding import ReadPiece
from eventbridge.delivery.queue_copies import is_dead_letter
from eventbridge.delivery.rows import alike_row, alike_table
from eventbridge.delivery.run import Send, TargetRun
from eventbridge.delivery.segments import BestOutcome
from eventbridge.delivery.steps import Steps, flush, not_flushed
from eventbridge.event.ids import batch_time
from eventbridge.model.chunk import Piece
from eventbridge.model.outcome import DELIVERED, DeadLettered, Outcome, Response, RetryAt
from eventbridge.policy.response_to_outcome import decide, expired, too_early, while_paused
from eventbridge.store import layout
from eventbridge.targets.protocol import DeliverySpan, SpanTarget


@dataclass(frozen=True)
class Span:
    """The deliveries of a piece. All of them are always sent, even if only those in `left` have no outcome yet."""

    piece: Piece
    rows: pa.Table
    left: pa.Array  # delivery ids
    attempts: int

    def to_delivery_span(self) -> DeliverySpan:
        """Return the span as its target receives it."""
        ids, payloads = (_in_one_piece(self.rows[name]) for name in ("delivery_id", "payload"))
        return DeliverySpan(*_name_of(self.piece), ids, payloads)

    @property
    def youngest(self) -> datetime:
        """The time from which the age of the youngest delivery, and so of the span, is measured."""
        found: datetime = pc.max(self.rows["arrived_at"]).as_py()
        return found


def spans_of(pieces: Sequence[ReadPiece], done: Mapping[bytes, BestOutcome]) -> list[Span]:
    """Return the spans that have deliveries without an outcome."""
    spans = []
    for each in pieces:
        rows = each.rows
        if rows["failure"].null_count < len(rows):
            rows = rows.filter(pc.is_null(rows["failure"]))
        ids = _in_one_piece(rows["delivery_id"])
        shown = [done.get(delivery_id) for delivery_id in ids.to_pylist()] if done else []
        if shown:
            ids = ids.filter(pa.array([seen is None or seen.status == "unknown" for seen in shown]))
        attempts = max([each.piece.attempts, *(seen.attempts for seen in shown if seen is not None)])
        if len(ids):
            spans.append(Span(each.piece, rows, ids, attempts))
    return spans


def _in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; it is copied only if it is in several pieces."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _name_of(piece: Piece) -> tuple[str, datetime]:
    """Return the name of a span, and when the batch that wrote its file was planned."""
    file = piece.file
    batch_id = layout.batch_of_dead_letters(file) if is_dead_letter(file) else layout.batch_of_deliveries(file)
    text = "\n".join((piece.rule, piece.target, file, piece.rows))
    return f"{batch_id}-{hashlib.sha256(text.encode()).hexdigest()[:32]}", batch_time(batch_id)


class SpanDeliveries:
    """Sends the spans of one target one by one. Retries are left to a retry batch; a rate limit counts spans."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.total = sum(len(span.left) for span in spans)
        self._spans = list(spans)

    def deliver(self, run: TargetRun, send: Send) -> Steps[None]:
        """Send spans until each of them has a response or must wait, the budget is spent, or the run must end."""
        assert isinstance(send.target, SpanTarget), "its type says that it takes spans"
        while self._spans:
            span = self._spans[0]
            outcome = _unsent_outcome(run, span)
            if outcome is not None:
                _put_outcome(run, span, outcome, None)
            elif run.must_end(run.clock()) or not _may_send(run) or not self._send(run, send.target, span):
                break
            del self._spans[0]
            yield from ()
        run.report.spent = bool(self._spans) and not run.is_refused and run.clock() >= run.until

    def _send(self, run: TargetRun, target: SpanTarget, span: Span) -> bool:
        """Send a span and record its outcome; return False if it is too late and nothing was sent."""
        found = target.deliver_span(span.to_delivery_span(), run.until)
        if found is None:
            return False
        response, rejected, stored = found
        run.report.sent += len(span.left)
        if (lost := flush(target)) is not None:
            response, stored = not_flushed(response, lost), {}  # nothing is known to be stored
        outcome = _decide_outcome(run, span, response)
        own = _own_responses(outcome, rejected, stored)
        if own:
            _put_outcomes(run, span, outcome, response, own)
        else:
            _put_outcome(run, span, outcome, response)
        return True


def _own_responses(
    outcome: Outcome, rejected: Mapping[bytes, Response], stored: Mapping[bytes, Response]
) -> Mapping[bytes, Response]:
    """Return the responses to deliveries whose outcome differs from that of their span, by delivery id.

    A span that is tried again is tried as a whole, so all its deliveries have one outcome.
    """
    if outcome is DELIVERED:
        return rejected
    return stored if isinstance(outcome, DeadLettered) else {}


def _put_outcomes(
    run: TargetRun, span: Span, outcome: Outcome, response: Response, own: Mapping[bytes, Response]
) -> None:
    """Record the outcome of a span, and those of the deliveries that have a response of their own."""
    ids_by_response: dict[Response, list[bytes]] = defaultdict(list)
    for delivery_id in span.left.to_pylist():
        ids_by_response[own.get(delivery_id, response)].append(delivery_id)
    for same, ids in ids_by_response.items():
        part = replace(span, left=pa.array(ids, span.left.type))
        _put_outcome(run, part, outcome if same is response else _decide(run, part, same), same)


def _unsent_outcome(run: TargetRun, span: Span) -> Outcome | None:
    """Return the outcome of a span that is not sent now; None if it may be sent."""
    now = run.clock()
    policy, on_hold_seconds = run.settings.policy, span.piece.on_hold_seconds
    if (end := expired(policy, span.youngest, on_hold_seconds, now)) is not None:
        return end
    if (paused_until := run.pause.end_at(now)) is not None:
        run.report.held_up = True
        return while_paused(policy, span.youngest, on_hold_seconds, paused_until, now)
    return too_early(None, run.settings.window, now)


def _may_send(run: TargetRun) -> bool:
    now = run.clock()
    may = run.admits(now, 1, fresh=True)
    run.report.held_up |= not may
    return may


def _decide_outcome(run: TargetRun, span: Span, response: Response) -> Outcome:
    """Return the outcome of a span, whose deliveries share one attempt, one response and one jitter sample."""
    sample = run.retry_jitter.sample(response)
    if run.settings.shadow:
        run.breaker.record_accepted(1, sample.at)
        return DELIVERED
    run.judge(span.left[0].as_py(), response, attempts=span.attempts + 1, at=sample)
    return _decide(run, span, response)


def _decide(run: TargetRun, span: Span, response: Response) -> Outcome:
    now, draw = run.retry_jitter.sample(response)
    return decide(
        response,
        run.settings.terms,
        attempts=span.attempts + 1,
        arrived_at=span.youngest,
        on_hold_seconds=span.piece.on_hold_seconds,
        now=now,
        draw=draw,
    )


def _put_outcome(run: TargetRun, span: Span, outcome: Outcome, response: Response | None) -> None:
    """Add the rows for those deliveries of a span that had no outcome yet. They are one table, so that a segment has
    all of them or none."""
    if run.settings.shadow and isinstance(outcome, (DeadLettered, RetryAt)):
        outcome = DELIVERED  # a shadow's failure has no effect
    count = len(span.left)
    if response is not None:
        run.note_duration(response)
    if outcome is DELIVERED:
        run.report.delivered += count
    elif isinstance(outcome, DeadLettered):
        run.report.dead_lettered += count
    elif isinstance(outcome, RetryAt):
        run.report.retried += count
    attempt = span.attempts + (response is not None)
    like = alike_row((span.piece.rule, span.piece.target, attempt), outcome, response, run.clock())
    run.settings.rows.put_table(alike_table(span.left, like))
