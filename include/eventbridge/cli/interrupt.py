"""Handles Ctrl-C and SIGTERM in a command that delivers or writes: stop gracefully first, then at once."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Self

import typer

from eventbridge.cli.output import note
from eventbridge.errors import SparkError
from eventbridge.runtime.stop import Stop

#: A shell adds the number of the signal that ended a process.
_EXIT_CODE_BASE = 128
#: How long Spark may still compute after the first signal: most jobs end by then, and a supervisor that waits half a
#: minute before it kills the process leaves enough to end a Spark of its own.
_SPARK_SECONDS = 15.0


class Interrupts:
    """While the context is open, SIGINT and SIGTERM stop the command and its child processes.

    Before `begin` a signal ends it at once. After `begin` the first one sets `stop`, the second one
    `stop.set_at_once`, and the third one ends it at once. A command that is ended at once, or while Spark computes, has
    the exit code of its signal.
    """

    def __init__(self) -> None:
        self.stop = Stop()
        self._signal: int | None = None
        self._orderly = False

    @property
    def exit_code(self) -> int:
        """130 after SIGINT, 143 after SIGTERM, 0 if there was neither."""
        return 0 if self._signal is None else _EXIT_CODE_BASE + self._signal

    def begin(self) -> None:
        """From now on the first signal asks for a graceful stop."""
        self._orderly = True

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if isinstance(error, KeyboardInterrupt):
            raise typer.Exit(self.exit_code)
        if isinstance(error, SparkError) and self.stop.is_set():
            note(f"{error} The batch keeps its events: the next run continues with it.")
            raise typer.Exit(self.exit_code)

    def ends_spark(self) -> bool:
        """Return whether a job of Spark that is not finished is to be given up: 15 s after the first signal."""
        return self.stop.is_over(_SPARK_SECONDS)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._signal = number
        if not self._orderly or self.stop.is_over():
            self.stop.set_at_once()
            raise KeyboardInterrupt
        if self.stop.is_set():
            self.stop.set_at_once()
            note("stopping without the responses to requests in flight; a third signal ends the process at once")
        else:
            self.stop.set()
            note("stopping once each request in flight has its response or its timeout; a second signal ends the wait")
