"""Sends deliveries to the target of a plug-in, and checks what it returns."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, Protocol

from eventbridge.errors import EventBridgeError, PlugInError, TypeUnusable, UserError
from eventbridge.event.ids import delivery_id_text
from eventbridge.fault_points import reach
from eventbridge.model.outcome import INTERRUPTED, REJECTED, Response
from eventbridge.plug_in_calls import Call, OpenedPlugIn, PlugIn, kind_of
from eventbridge.rules import Target as TargetRule
from eventbridge.targets.protocol import DeliverySpan, Request, SpanResponse

#: The error class of a delivery for which the plug-in raised, or returned what the contract does not allow.
FAILED: Final = "PlugInFailed"
#: The error class of a delivery that the plug-in reports as failed, or as rejected for good.
NOT_ACCEPTED: Final = "NotAccepted"
#: The maximum number of deliveries that fail together because the plug-in's object cannot be opened.
_FAILED_TOGETHER: Final = 20
#: The maximum number of characters of an error that are recorded, and of which secrets are removed.
_SHOWN: Final = 2_000
_VEILED: Final = 100_000
#: How much longer than the timeout of its target a call may take, in seconds, so that its own timeout comes first.
_GRACE_SECONDS: Final = 1.0


class Result(NamedTuple):
    """What became of one delivery; create it by `accept`, `retry`, `reject` or `from_status`."""

    accepted: bool
    error: str = ""
    code: int | None = None
    retry_after_seconds: float | None = None
    is_final: bool = False

    @classmethod
    def accept(cls) -> Result:
        """Return the result of a delivery that the target has, durably."""
        return cls(True)

    @classmethod
    def retry(cls, error: str, after_seconds: float | None = None) -> Result:
        """Return the result of a delivery to try again by the retry policy, not before `after_seconds` are over."""
        return cls(False, error, None, after_seconds)

    @classmethod
    def reject(cls, error: str) -> Result:
        """Return the result of a delivery that the target will never accept: it becomes a dead letter."""
        return cls(False, error, is_final=True)

    @classmethod
    def from_status(cls, code: int, error: str = "", retry_after_seconds: float | None = None) -> Result:
        """Return the result for an HTTP status, which counts as for http targets: 429 pauses, 410 disables a target."""
        return cls(200 <= code < 300, error, code, retry_after_seconds)


class Sender(Protocol):
    """What the opener of a target type returns, if the type takes deliveries. One thread uses it.

    `max_requests` is the maximum number of deliveries in a call of `send`, 1 without such an attribute. The methods
    `check` and `close` are optional; `check` returns why deliveries would fail, or None, and sends nothing.
    """

    def send(self, requests: Sequence[Request]) -> Mapping[str, Result]:
        """Send deliveries, and return the result of each by its delivery id.

        A call that raises, takes longer than the target's timeout or returns anything else fails all of them; they are
        tried again.
        """


class SpanSender(Protocol):
    """What the opener of a target type returns, if the type takes spans: rows that are stored in one transaction."""

    def send_span(self, span: DeliverySpan) -> Result | Mapping[str, Result]:
        """Store a span under its name unless it is stored already, and return one result for all of its deliveries.

        To reject single deliveries of a span that is stored without them, return `Result.reject` by their ids. A span
        that is sent again has the same name, and the same deliveries in the same order: return the same again.
        """


class PlugInTarget:
    """A target whose deliveries a plug-in sends, in a thread that is given up if a call takes too long.

    Only the deliveries of a call that fails get an error. After a call that was given up, the plug-in's object is
    opened again.
    """

    flush_every = 1

    def __init__(
        self,
        plug_in: PlugIn,
        opener: Callable[[], Any],
        target: TargetRule,
        veil: Callable[[str], str],
        clock: Callable[[], datetime],
    ) -> None:
        self.more_of_response = 0
        self._plug_in, self._opener, self._target = plug_in, opener, target
        self._veil, self._clock = veil, clock
        self._seconds = target.timeout_seconds + _GRACE_SECONDS
        self._opened = OpenedPlugIn(plug_in, opener, veil=veil)

    def deliver(self, requests: Sequence[Request], until: datetime) -> Generator[tuple[int, Response], None, None]:
        """Send every request, see `protocol.Target`."""
        waiting = iter(requests)
        while self._clock() < until:
            group, failed = self._group(waiting, until)
            if not group:
                return
            responses = self._send(group, until) if failed is None else [failed] * len(group)
            for left, request, response in zip(range(len(group) - 1, -1, -1), group, responses, strict=True):
                self.more_of_response = left
                yield request.index, response

    def deliver_span(self, span: DeliverySpan, until: datetime) -> SpanResponse | None:
        """Store a span, see `protocol.SpanTarget`."""
        if self._clock() >= until:
            return None
        ids = {delivery_id_text(each): each for each in span.delivery_ids.to_pylist()}
        found, response = self._timed(lambda sender: self._span_results(sender, span, ids), until)
        if not isinstance(found, Mapping):
            return SpanResponse(response(found), {})
        return SpanResponse(response(Result.accept()), {ids[name]: response(each) for name, each in found.items()})

    def flush(self) -> None:
        """Return immediately, because an accepted delivery is durable."""

    def check(self) -> str | None:
        """Return why deliveries would fail, None if they would not; sends nothing.

        Raises UserError if the plug-in cannot tell.
        """
        try:
            check = self._opened.call(lambda sender: getattr(sender, "check", None), self._seconds)
            if check is None:
                raise UserError(
                    f"Targets of the type {self._target.type} cannot be checked without sending. "
                    f"Send one event: eventbridge targets send RULE {self._target.name} --event FILE"
                )
            found = self._opened.call(lambda sender: sender.check(), self._seconds)
        except PlugInError as error:
            return self._without_secrets(error)
        if found is None:
            return None
        if isinstance(found, str):
            return self._without_secrets(found)
        return str(self._plug_in.error(f"returned {kind_of(found)} from check, but must return a text or None"))

    def close(self) -> None:
        """Close the plug-in's object, without waiting for it."""
        self._opened.close()

    def _group(self, waiting: Iterator[Request], until: datetime) -> tuple[list[Request], Response | None]:
        """Return the requests of the next call; and the response to them if the plug-in's object cannot be opened."""
        found, response = self._timed(self._max_requests, until)
        if isinstance(found, int):
            return list(itertools.islice(waiting, found)), None
        return list(itertools.islice(waiting, _FAILED_TOGETHER)), response(found)

    def _send(self, group: Sequence[Request], until: datetime) -> list[Response]:
        found, response = self._timed(lambda sender: self._results(sender, group), until)
        if isinstance(found, Mapping):
            return [response(found[each.delivery_id]) for each in group]
        return [response(found)] * len(group)

    def _max_requests(self, sender: Any) -> int:
        most = getattr(sender, "max_requests", 1)
        if callable(getattr(sender, "send", None)) and type(most) is int and most > 0:
            return most
        raise self._plug_in.error(f"opened {kind_of(sender)}, but must open an object with a method send")

    def _results(self, sender: Any, group: Sequence[Request]) -> dict[str, Result | PlugInError]:
        found = sender.send([replace(each, headers=dict(each.headers)) for each in group])
        ids = {each.delivery_id for each in group}
        self._refuse_nonsense(found, ids, "send")
        missing = self._plug_in.error("returned no result for this delivery")
        return {each: self._checked(found[each]) if each in found else missing for each in ids}

    def _span_results(
        self, sender: Any, span: DeliverySpan, ids: Mapping[str, bytes]
    ) -> Result | PlugInError | dict[str, Result | PlugInError]:
        if not callable(getattr(sender, "send_span", None)):
            raise self._plug_in.error(f"opened {kind_of(sender)}, but must open an object with a method send_span")
        found = sender.send_span(span)
        if isinstance(found, Result):
            return self._checked(found)
        self._refuse_nonsense(found, ids, "send_span")
        if not all(isinstance(each, Result) and each.is_final for each in found.values()):
            raise self._plug_in.error("returned results for deliveries of a span that are no rejections")
        return {name: self._checked(each) for name, each in found.items()}

    def _refuse_nonsense(self, found: Any, ids: Collection[str], method: str) -> None:
        if not isinstance(found, Mapping):
            raise self._plug_in.error(
                f"returned {kind_of(found)} from {method}, but must return results by delivery id"
            )
        if not all(each in ids for each in found):
            raise self._plug_in.error(f"returned results from {method} for deliveries that it was not given")

    def _checked(self, found: Any) -> Result | PlugInError:
        """Return a result, or the error about it: a plug-in may put anything into its fields."""
        if not isinstance(found, Result):
            return self._plug_in.error(f"returned {kind_of(found)} as the result of a delivery")
        is_code = found.code is None or (type(found.code) is int and 100 <= found.code <= 999)
        after = found.retry_after_seconds
        is_time = after is None or (isinstance(after, (int, float)) and 0 <= after < math.inf)
        if isinstance(found.error, str) and isinstance(found.accepted, bool) and is_code and is_time:
            return found
        shown = self._without_secrets(repr(tuple(found)))
        return self._plug_in.error(f"returned the result {shown:.200}, which has a wrong value")

    def _timed(
        self, use: Callable[[Any], Any], until: datetime
    ) -> tuple[Any, Callable[[Result | PlugInError | EventBridgeError], Response]]:
        """Return what a call with the plug-in's object returned, or its error, and a function that makes responses.

        A call that is given up leaves its object and its thread behind. Raises UserError if the target cannot be opened
        as the rule file or its connection has it.
        """
        started_at, began = self._clock(), time.monotonic()
        reach("target.send")
        seconds = min(self._seconds, max(0.0, (until - started_at).total_seconds()))
        ended: SimpleQueue[Call] = SimpleQueue()
        found: Any
        error_class = FAILED
        try:
            call = self._opened.begin(use, ended)
            try:
                found = ended.get(timeout=seconds).result()
            except Empty:
                found = call.give_up()
                error_class = INTERRUPTED if seconds < self._seconds else "Timeout"
                self._opened.close()
                self._opened = OpenedPlugIn(self._plug_in, self._opener, veil=self._veil)
        except EventBridgeError as error:
            if isinstance(error, UserError) and not isinstance(error, TypeUnusable):
                raise
            found = error
        duration_ms = (time.monotonic() - began) * 1000
        reach("target.responded")

        def response(result: Result | EventBridgeError) -> Response:
            if not isinstance(result, Result):
                return Response(
                    False, started_at, duration_ms, error_class=error_class, error=self._without_secrets(result)
                )
            if result.accepted:
                return Response(True, started_at, duration_ms, code=result.code)
            kind = None if result.code is not None else REJECTED if result.is_final else NOT_ACCEPTED
            after = result.retry_after_seconds
            return Response(
                False,
                started_at,
                duration_ms,
                code=result.code,
                error_class=kind,
                error=self._without_secrets(result.error) or None,
                retry_after=None if after is None else str(math.ceil(after)),
            )

        return found, response

    def _without_secrets(self, error: object) -> str:
        """Return the text of an error, without the secrets of the connections that the plug-in has read."""
        return self._veil(str(error)[:_VEILED])[:_SHOWN]
