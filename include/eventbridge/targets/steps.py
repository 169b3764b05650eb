"""Defines the steps of deliveries that share a thread: a response, a wait, or a blocking call."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from datetime import datetime
from typing import Any, Protocol, TypeGuard

from eventbridge.model.outcome import Response
from eventbridge.targets.http.engine import TransferSlot
from eventbridge.targets.protocol import Request, Target


class BlockingCall:
    """A call that may block; the caller of `steps` runs it, in any thread, before it takes the next step."""

    __slots__ = ("_call", "_error", "_result")

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Make the call; never raises."""
        try:
            self._result = self._call()
        except BaseException as error:  # raised by `result`
            self._error = error

    def result(self) -> Any:
        """Return the result of the call, or raise its exception."""
        if self._error is not None:
            raise self._error
        return self._result


#: The index of a request and its response, or a call to run; None if there is nothing to do until the transfer slot has
#: news or `until` has passed.
Step = tuple[int, Response] | BlockingCall | None


class MultiplexedTarget(Target, Protocol):
    """A target that needs no thread of its own for deliveries, so that many of them share one event loop."""

    def steps(
        self, requests: Iterable[Request | None], until: datetime, slot: TransferSlot
    ) -> Generator[Step, None, None]:
        """Deliver like `deliver`, and also yield the blocking calls and waits that the caller must handle (`Step`).

        A request of None means that the next one is not ready, and the caller must act first.
        A target with batch requests looks ahead, and requires a sequence.
        """


def is_multiplexed(target: Target) -> TypeGuard[MultiplexedTarget]:
    """Return whether a target can share an event loop."""
    # isinstance of a runtime-checkable protocol takes 0.3 ms, as long as two deliveries
    return hasattr(target, "steps")
