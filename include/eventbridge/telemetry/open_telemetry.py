"""Telemetry by OpenTelemetry: spans of batches and of the deliveries that are traced, sent by OTLP over HTTP.

Spans are made of what the ledger and the files say, with ids made of what they are of: a stage that was killed and ran
again tells the same span.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from eventbridge.event.ids import batch_time, delivery_id_text
from eventbridge.telemetry.ids import TraceParent, batch_trace, span_id, trace_of
from eventbridge.telemetry.protocol import DeliverySettled, LookEnded, PushEnded, StageEnded
from eventbridge.telemetry.service import service
from eventbridge.version import __version__

_SCOPE = InstrumentationScope("eventbridge", __version__)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENDED = ("delivered", "dead_lettered")

#: How long the end of a process waits for a collector that does not respond.
FLUSH_MS = 3_000


class OpenTelemetry:
    """Tells a collector what ended; `ratio` of deliveries without a trace of their event are traced."""

    def __init__(self, ratio: float, exporter: SpanExporter | None = None) -> None:
        """`exporter` None: what the usual OTEL_* variables say."""
        self._ratio = ratio
        self._resource = service()
        self._processor = BatchSpanProcessor(exporter or OTLPSpanExporter())

    def stage_ended(self, ended: StageEnded) -> None:
        """Tell a stage of a batch; with `commit`, the batch itself."""
        if ended.batch_id is None:
            return
        trace, root = batch_trace(ended.batch_id), span_id(ended.batch_id)
        status = Status(StatusCode.ERROR, ended.error) if ended.error else Status()
        words = {"eventbridge.batch_id": ended.batch_id, "eventbridge.runner": ended.runner}
        own = span_id(ended.batch_id, ended.stage, ended.started_at.isoformat())
        parent = TraceParent(trace, root, sampled=True)
        self._tell(ended.stage, parent, own, ended.started_at, ended.ended_at, words, status=status)
        if ended.stage == "commit" and not ended.error:
            top = TraceParent(trace, 0, sampled=True)
            self._tell("batch", top, root, batch_time(ended.batch_id), ended.ended_at, words)

    def push_ended(self, ended: PushEnded) -> None:
        """Do nothing: the stage `push` is told, too."""

    def look_ended(self, ended: LookEnded) -> None:
        """Do nothing: there are several a second."""

    def traces(self, delivery_id: bytes, traceparent: str | None) -> bool:
        """Return whether a delivery is traced: as its event's publisher says, or as the ratio does."""
        return trace_of(delivery_id, traceparent, self._ratio).sampled

    def delivery_settled(self, settled: DeliverySettled) -> None:
        """Tell landed, routed and each attempt; once it has ended, the delivery itself, from published on."""
        trace = trace_of(settled.delivery_id, settled.traceparent, self._ratio)
        name = delivery_id_text(settled.delivery_id)
        below = TraceParent(trace.trace_id, span_id(name), sampled=True)
        words = {
            "eventbridge.delivery_id": name,
            "eventbridge.batch_id": settled.batch_id,
            "eventbridge.bus": settled.bus,
            "eventbridge.rule": settled.rule,
            "eventbridge.target": settled.target,
            "cloudevents.event_id": settled.event_id,
            "cloudevents.event_source": settled.source,
        }
        first = min((each.started_at for each in settled.attempts), default=settled.settled_at)
        if not settled.attempts or min(each.number for each in settled.attempts) <= 1:
            self._tell("landed", below, span_id(name, "landed"), settled.published_at, settled.arrived_at, words)
            if first is not None:
                self._tell("routed", below, span_id(name, "routed"), settled.arrived_at, first, words)
        for each in settled.attempts:
            status = Status() if each.outcome == "delivered" else Status(StatusCode.ERROR, each.error or each.outcome)
            made = {"http.response.status_code": each.code, "eventbridge.attempt": each.number}
            own = span_id(name, settled.batch_id, each.number)
            self._tell(
                "attempt", below, own, each.started_at, each.started_at + each.duration, words | made, status=status
            )
        if settled.verdict in _ENDED:
            dead = settled.verdict == "dead_lettered"
            status = Status(StatusCode.ERROR, settled.reason) if dead else Status()
            end = settled.settled_at or first or settled.arrived_at
            ended = "dead letter" if dead else "delivered"
            verdict = words | {"eventbridge.verdict": settled.verdict, "eventbridge.reason": settled.reason}
            link = self._context(batch_trace(settled.batch_id), span_id(settled.batch_id))
            self._tell(ended, trace, span_id(name), settled.published_at, end, verdict, status=status, link=link)

    def close(self) -> None:
        """Send what is kept, for a few seconds at most."""
        self._processor.force_flush(FLUSH_MS)
        self._processor.shutdown()  # type: ignore[no-untyped-call]

    def _tell(
        self,
        name: str,
        parent: TraceParent,
        own: int,
        start: datetime,
        end: datetime,
        words: Mapping[str, Any],
        *,
        status: Status | None = None,
        link: SpanContext | None = None,
    ) -> None:
        self._processor.on_end(
            ReadableSpan(
                name=name,
                context=self._context(parent.trace_id, own),
                parent=self._context(parent.trace_id, parent.span_id) if parent.span_id else None,
                resource=self._resource,
                attributes={key: value for key, value in words.items() if value is not None},
                links=() if link is None else (Link(link),),
                kind=SpanKind.INTERNAL,
                status=status or Status(),
                start_time=_nanoseconds(start),
                end_time=_nanoseconds(max(start, end)),
                instrumentation_scope=_SCOPE,
            )
        )

    @staticmethod
    def _context(trace_id: int, own: int) -> SpanContext:
        return SpanContext(trace_id, own, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1_000
