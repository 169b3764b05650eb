"""Makes Ctrl-C and SIGTERM stop a command that delivers or writes, gracefully at first and then immediately."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Self

import typer

from eventbridge.cli.output import note
from eventbridge.errors import SparkError
from eventbridge.runtime.stop import Stop

#: Added to the number of a signal, this is the exit code after the signal, as in a shell.
_EXIT_CODE_BASE = 128
#: The maximum time that a Spark job may continue after the first signal. Most jobs end by then, and a supervisor that
#: kills the process half a minute after its signal leaves enough time to stop a Spark server that the command started.
_SPARK_SECONDS = 15.0


class Interrupts:
    """While the context is open, SIGINT and SIGTERM stop the command and its child processes.

    Before `begin`, a signal ends the command immediately. After `begin`, the first signal sets `stop`, the second calls
    `stop.set_at_once`, and the third ends the command immediately. A command that is ended immediately, or during a
    Spark job, has the exit code of its signal.
    """

    def __init__(self) -> None:
        self.stop = Stop()
        self._signal: int | None = None
        self._orderly = False

    @property
    def exit_code(self) -> int:
        """Return 130 after SIGINT, 143 after SIGTERM, 0 if neither arrived."""
        return 0 if self._signal is None else _EXIT_CODE_BASE + self._signal

    def begin(self) -> None:
        """Make the next signal ask for a graceful stop instead of ending the command."""
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
            note(f"{error} The batch keeps its events, and the next run continues it.")
            raise typer.Exit(self.exit_code)

    def ends_spark(self) -> bool:
        """Return whether to abandon an unfinished Spark job: 15 s after the first signal, or after the second one."""
        return self.stop.is_over(_SPARK_SECONDS)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._signal = number
        if not self._orderly or self.stop.is_over():
            self.stop.set_at_once()
            raise KeyboardInterrupt
        if self.stop.is_set():
            self.stop.set_at_once()
            note("stopping without waiting for requests in flight; a third signal ends the process immediately")
        else:
            self.stop.set()
            note("stopping once each request in flight has its response or its timeout; a second signal ends the wait")
