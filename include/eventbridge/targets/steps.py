"""What a delivery that shares its thread with others does between two responses: it waits, or has a call made in
another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from datetime import datetime
from typing import Any, Protocol, TypeGuard

from eventbridge.model.response import Response
from eventbridge.targets.http_engine import TransferSlot
from eventbridge.targets.protocol import Request, Target


class BlockingCall:
    """A call that may take its time: whoever drives a delivery has it made, in any thread, before it goes on."""

    __slots__ = ("_call", "_error", "_result")

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Make the call; raises nothing."""
        try:
            self._result = self._call()
        except BaseException as error:  # raised where its result is asked for
            self._error = error

    def result(self) -> Any:
        """Return what the call returned, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return self._result


#: A response and the index of its request; None: there is nothing to do until the transfer slot has news or the time is
#: over.
Step = tuple[int, Response] | BlockingCall | None


class MultiplexedTarget(Target, Protocol):
    """A target that delivers without holding a thread: many of them share one event loop."""

    def steps(
        self, requests: Iterable[Request | None], until: datetime, slot: TransferSlot
    ) -> Generator[Step, None, None]:
        """Deliver as `deliver` does, and yield what is to be waited for too.

        A request that is None is none: the next may be sent once whoever drives this has done something for it.
        A target that sends batch requests looks ahead, and takes nothing but a sequence.
        """


def is_multiplexed(target: Target) -> TypeGuard[MultiplexedTarget]:
    """Return whether a target can share an event loop."""
    return hasattr(target, "steps")  # to ask a runtime-checkable protocol takes 0.3 ms, as long as two deliveries
