"""Shows the progress of a long command as one line on the terminal, on standard error, and erases it at the end."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO, cast

from eventbridge.cli.failure import has_json_option
from eventbridge.progress import Progress, unreported

#: The time that a command runs before its progress is shown, so that a quick command shows none.
AFTER_SECONDS: Final = 2.0
_REDRAW_SECONDS: Final = 0.2
_BAR_WIDTH: Final = 24
#: The width of a terminal that does not say how wide it is.
_DEFAULT_WIDTH: Final = 80
#: Moves to the beginning of the line and erases it.
_ERASE: Final = "\r\x1b[K"


@contextmanager
def shown_progress(doing: str, units: str, *, hidden: bool = False) -> Iterator[Progress]:
    """Yield the function that takes the progress of the body; after 2 s the terminal shows it, until the body ends.

    `doing` is the action (`auditing`), and `units` names what is counted (`batches`). Nothing is shown if standard
    error is not a terminal, if the terminal cannot erase a line, or if the output is a document, whose error is JSON.
    `hidden` is for a body that itself reads from the terminal, or writes a stream to it.
    """
    if hidden or not _is_shown(sys.stderr):
        yield unreported
        return
    line = _ProgressLine(doing, units, sys.stderr)
    sys.stderr = cast(TextIO, _ErasingStream(line))  # a note or a warning of the body replaces the line
    try:
        yield line.report
    finally:
        sys.stderr = line.end()


def log_warnings() -> None:
    """Write warnings of the log to standard error, where they take the place of the progress."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=_CurrentStandardError())


class _CurrentStandardError:
    """Standard error as it is now; the log would keep the stream that it had at first."""

    def write(self, text: str) -> int:
        """Write text."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Flush the stream."""
        sys.stderr.flush()


def _is_shown(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb" and not has_json_option(sys.argv[1:])


class _ProgressLine:
    """The line; a thread redraws it, because one step of the work may take minutes."""

    def __init__(self, doing: str, units: str, stream: TextIO) -> None:
        self.stream = stream
        #: Reentrant, because the handler of a signal may write a note while its own thread draws.
        self.lock = threading.RLock()
        self.is_drawn = False
        #: Whether the last text on the stream ended its line. A redrawn line would overwrite the beginning of one.
        self.is_at_margin = True
        self._what = (doing, units)
        self._at: tuple[int, int | None] | None = None
        self._begun = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._redraw, name="progress", daemon=True)
        self._thread.start()

    def report(self, done: int, total: int | None) -> None:
        """Take the progress, to be drawn later: the work may call this for every event."""
        self._at = (done, total)

    def erase(self) -> None:
        """Erase the line if it is drawn. The caller holds the lock."""
        if self.is_drawn:
            self.stream.write(_ERASE)
            self.is_drawn = False

    def end(self) -> TextIO:
        """Erase the line for good, and return the stream."""
        self._ended.set()
        self._thread.join()
        with self.lock:
            self.erase()
            self.stream.flush()
        return self.stream

    def _redraw(self) -> None:
        wait = AFTER_SECONDS
        while not self._ended.wait(wait):
            wait = _REDRAW_SECONDS
            try:
                self._draw()
            except OSError:  # the terminal is gone; the work is not
                return

    def _draw(self) -> None:
        # one less than the width: a character in the last column may begin another line
        text = progress_text(self._what, self._at, time.monotonic() - self._begun)[: _width(self.stream) - 1]
        with self.lock:
            if self.is_at_margin and _is_in_foreground(self.stream):
                self.stream.write(_ERASE + text)
                self.stream.flush()
                self.is_drawn = True


class _ErasingStream:
    """Standard error while progress is shown: erases the line before anything else is written."""

    def __init__(self, line: _ProgressLine) -> None:
        self._line = line

    def write(self, text: str) -> int:
        """Write text in place of the line."""
        with self._line.lock:
            self._line.erase()
            self._line.is_at_margin = text.endswith("\n")
            return self._line.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._line.stream, name)


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _DEFAULT_WIDTH
    except OSError:
        return _DEFAULT_WIDTH


def _is_in_foreground(stream: TextIO) -> bool:
    """Return False if the shell runs the command in the background, where it would write into another's line."""
    try:
        return os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    except OSError:  # it is not the terminal from which the command was started
        return True


def progress_text(what: tuple[str, str], at: tuple[int, int | None] | None, seconds: float) -> str:
    """Return the line for an action and its units, after so many seconds; `at` is None before the first report."""
    doing, units = what
    if at is None:
        return f"{doing}  {_clock(seconds)}"
    done, total = at
    if not total:
        return f"{doing}  {done:,} {units}  {_clock(seconds)}"
    share = min(done / total, 1.0)
    filled = int(share * _BAR_WIDTH)
    bar = "#" * filled + "-" * (_BAR_WIDTH - filled)
    left = f", {_clock(seconds / share - seconds)} left" if 0 < share < 1 else ""
    return f"{doing}  [{bar}] {share * 100:.0f}%  {done:,} of {total:,} {units}  {_clock(seconds)}{left}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
