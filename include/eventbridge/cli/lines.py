"""Reads JSON lines from a file or from standard input, a line at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from eventbridge.cli.output import note
from eventbridge.errors import UserError


def numbered_lines(name: str) -> Iterator[tuple[int, bytes]]:
    """Yield (number from 1, line) of a file, or of standard input for `-`; lines of white space are left out.

    Raises UserError if it cannot be read.
    """
    try:
        if name == "-":
            if sys.stdin.isatty():
                note("reading JSON lines from the terminal; Ctrl-D ends them")
            yield from _filled(sys.stdin.buffer)
        else:
            with Path(name).open("rb") as stream:
                yield from _filled(stream)
    except OSError as error:
        raise UserError(
            f"cannot read {name}: {error.strerror}. Name a file of JSON lines, or - for standard input"
        ) from error
    except ValueError as error:  # a NUL in the name
        raise UserError(f"cannot read {name!r}: {error}") from error


def whole_file(name: str) -> bytes:
    """Return a file, or standard input for `-`, as one JSON text; raises UserError if it cannot be read."""
    return b"\n".join(line for _, line in numbered_lines(name))


def _filled(stream: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(stream, 1):
        stripped = line.strip()
        if stripped:
            yield number, stripped
