"""What Ctrl-C and SIGTERM mean to a command that delivers or writes: first to stop in good order, then at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Self

import typer

from eventbridge.cli.output import note

#: What a shell shows for a process that a signal ended.
_EXIT_CODE_BASE = 128


class Interrupts:
    """While the context is open, SIGINT and SIGTERM end what the process is at, and its children with it.

    Before `begin` they end it at once. After it the first one sets `stop`, and the next one ends it at once.
    Ended at once, the command has the exit code of its signal.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._signal: int | None = None
        self._orderly = False

    @property
    def exit_code(self) -> int:
        """130 after SIGINT, 143 after SIGTERM, 0 if there was neither."""
        return 0 if self._signal is None else _EXIT_CODE_BASE + self._signal

    def begin(self) -> None:
        """From now on the first signal asks to stop in good order."""
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

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        first = self._signal is None
        self._signal = number
        self.stop.set()
        if not (first and self._orderly):
            raise KeyboardInterrupt
        note("stopping once what is under way is settled; a second signal stops at once")
