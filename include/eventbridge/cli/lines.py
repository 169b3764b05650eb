"""Reads a file or standard input: JSON lines, a line at a time, or one event whole."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from eventbridge.cli.output import note
from eventbridge.errors import UserError


def numbered_lines(name: str) -> Iterator[tuple[int, bytes]]:
    """Yield (number from 1, line) of a file, or of standard input for `-`; lines of white space are left out.

    Raises UserError if it cannot be read.
    """
    with _opened(name, "JSON lines") as stream:
        yield from _filled(stream)


def one_event(name: str, most: int) -> bytes:
    """Return the content of a file, or of standard input for `-`: one event, which may have several lines.

    The end of its last line is left out, as `bus publish` leaves it out, so that a target gets the bytes of a delivery.
    Reads at most `most` bytes, that end, and one byte more. Raises UserError if the file cannot be read.
    """
    with _opened(name, "one event in JSON") as stream:
        content = stream.read(most + len(b"\r\n") + 1)
    # One end of a line and no more: without the rest of a larger file, what was cut off could be a second event.
    return content.removesuffix(b"\n").removesuffix(b"\r")


@contextmanager
def _opened(name: str, what: str) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`, to read `what`; raises UserError for what fails meanwhile."""
    try:
        if name == "-":
            if sys.stdin.isatty():
                note(f"reading {what} from the terminal; Ctrl-D ends it")
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


def _filled(stream: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(stream, 1):
        stripped = line.strip()
        if stripped:
            yield number, stripped
