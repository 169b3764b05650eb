"""Describes what a target's run waits for between two sends, so that its own thread or a shared loop can execute the
run."""

from __future__ import annotations

import threading
from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from eventbridge.errors import InfrastructureError
from eventbridge.model.outcome import Response
from eventbridge.targets.protocol import SharingTarget, Target, shares_flush
from eventbridge.targets.steps import BlockingCall


@dataclass(frozen=True, slots=True)
class Sleep:
    """A wait of `seconds`, or until `woken` is set."""

    seconds: float
    woken: threading.Event


@dataclass(frozen=True, slots=True)
class OwnThread:
    """A request to continue in a separate thread, because the next step blocks its thread."""


class SharedFlush:
    """A flush that may wait for the flushes of other targets on its `disk`, so that all are made together."""

    __slots__ = ("_error", "_lost", "_target", "disk")

    def __init__(self, target: SharingTarget) -> None:
        self._target = target
        self._lost: str | None = None
        self._error: BaseException | None = None
        self.disk: Hashable = target.disk

    def result(self) -> str | None:
        """Return an error message if something was lost, else None. Raises what the flush raised."""
        if self._error is not None:
            raise self._error
        return self._lost

    def run(self) -> None:
        """Flush only this target; never raises."""
        self.run_all([self])

    @staticmethod
    def run_all(flushes: Sequence[SharedFlush]) -> None:
        """Flush several targets, all on one disk; never raises."""
        try:
            lost = flushes[0]._target.flush_together([flush._target for flush in flushes])
            for flush, each in zip(flushes, lost, strict=True):
                flush._lost = each
        except BaseException as error:  # raised where the result is read
            for flush in flushes:
                flush._error = error


OWN_THREAD = OwnThread()

Wait = Sleep | BlockingCall | SharedFlush | OwnThread | None
Result = TypeVar("Result")
#: A generator that yields what it waits for, and returns a result. If it yields None, it is waiting for the next
#: response in the transfer slot.
Steps = Generator[Wait, None, Result]


def run_to_completion(steps: Steps[None], *, shares: bool = False) -> SharedFlush | None:
    """Run `steps` to the end in this thread; with `shares`, stop at a shared flush and return it."""
    for step in steps:
        if isinstance(step, Sleep):
            step.woken.wait(step.seconds)
        elif isinstance(step, SharedFlush) and shares:
            return step
        elif isinstance(step, BlockingCall | SharedFlush):
            step.run()
    return None


#: The maximum number of seconds that a response waits for its flush. Its age is checked only when the next response
#: comes.
_MAX_UNFLUSHED_SECONDS = 1.0
#: The maximum number of responses in a shared flush. A target with more responses flushes alone, so that no other
#: target has to wait for it.
_MAX_SHARED = 1_000


def must_flush(target: Target, waiting: int, first: Response, last: Response) -> bool:
    """Return whether a flush is due, given the number and the age of the responses that are waiting for it."""
    if waiting >= target.flush_every:
        return True
    return (last.started_at - first.started_at).total_seconds() + last.duration_ms / 1000 >= _MAX_UNFLUSHED_SECONDS


def flush(target: Target) -> str | None:
    """Make everything that a target has accepted durable; return an error message if something was lost."""
    try:
        target.flush()
    except InfrastructureError as error:
        return str(error)
    return None


def flush_in_turn(target: Target, responses: int) -> Steps[str | None]:
    """Flush a target after `responses` responses; the flush may wait for other targets on the same disk."""
    if responses > _MAX_SHARED or not shares_flush(target) or target.disk is None:
        return flush(target)
    shared = SharedFlush(target)
    yield shared
    return shared.result()


def not_flushed(response: Response, error: str) -> Response:
    """Return the response of a delivery that was lost with its target's buffer."""
    return response._replace(accepted=False, code=None, error_class="FlushFailed", error=error)
