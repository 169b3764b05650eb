"""Reads JSON lines one at a time, or a single event, from a file or standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from eventbridge.cli.output import note
from eventbridge.errors import UserError

#: The maximum number of bytes in a line, which is in memory. No event may be so large.
_MAX_LINE_BYTES: Final = 64 * 1024 * 1024


def numbered_lines(name: str) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, line) from a file, or from standard input for `-`; blank lines are counted but left out.

    Numbers start at 1. Raises UserError if the input cannot be read, or if a line is longer than an event may be.
    """
    with _open_input(name, "JSON lines") as stream:
        yield from _nonblank_lines(stream)


def count_lines(name: str) -> int | None:
    """Return the number of lines that `numbered_lines` would yield, or None for standard input and for anything that is
    not a regular file.

    Reading a file twice costs a hundredth of publishing its lines.
    """
    try:
        if name == "-" or not Path(name).is_file():
            return None
        with Path(name).open("rb") as stream:
            return sum(1 for _ in _nonblank_lines(stream))
    except (OSError, ValueError, UserError):  # `numbered_lines` reports it
        return None


def one_event(name: str, max_bytes: int) -> bytes:
    """Return one event, which may span several lines, from a file or, for `-`, from standard input.

    The final line ending is removed, as `events publish` removes it, so that a target gets the same bytes as in a
    delivery. Reads at most `max_bytes` bytes, the line ending, and one more byte, which shows that the event is too
    large. Raises UserError if the input cannot be read.
    """
    with _open_input(name, "one event in JSON") as stream:
        content = stream.read(max_bytes + len(b"\r\n") + 1)
    # Only one line ending is removed, because a second event may follow if the read stopped before the end of the file.
    return content.removesuffix(b"\n").removesuffix(b"\r")


@contextmanager
def _open_input(name: str, what: str) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`. Raises UserError for an OSError in the body. Messages call it `what`."""
    try:
        if name == "-":
            if sys.stdin.isatty():
                note(f"reading {what} from the terminal; Ctrl-D ends the input")
            yield sys.stdin.buffer
        else:
            with Path(name).open("rb") as stream:
                yield stream
    except OSError as error:
        raise UserError(
            f"cannot read {name}: {error.strerror}. Name a file that holds {what}, or - for standard input"
        ) from error
    except ValueError as error:  # a NUL in the name
        raise UserError(f"cannot read {name!r}: {error}") from error


def _nonblank_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(iter(lambda: stream.readline(_MAX_LINE_BYTES + 1), b""), 1):
        if len(line) > _MAX_LINE_BYTES:
            raise UserError(
                f"line {number} has more than {_MAX_LINE_BYTES:,} bytes. Name a file with an event per line"
            )
        stripped = line.strip()
        if stripped:
            yield number, stripped
