"""Colours words on a terminal: the kind of a message, and states in tables.

A pipe or a file gets none, nor does a terminal whose user has set NO_COLOR (https://no-color.org) or TERM=dumb.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, TextIO

import typer

#: The columns and fields whose values are states. In the column without a name, quality checks mark what failed.
STATE_NAMES: Final = frozenset({"state", "status", ""})
#: The colour of a state: red if a person may have to act, yellow if something waits or is unusual, green if all is
#: well. Any other state, such as `running`, keeps the terminal's own colour.
_COLOURS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("ok", "delivered", "done", "passed", "committed", "completed", "valid"), typer.colors.GREEN),
    **dict.fromkeys(
        ("degraded", "half-open", "open", "paused", "on_hold", "on hold", "scheduled", "retry_scheduled", "pending"),
        typer.colors.YELLOW,
    ),
    **dict.fromkeys(("unknown", "duplicate", "cancelled"), typer.colors.YELLOW),
    **dict.fromkeys(
        ("failed", "failing", "FAILED", "disabled", "dead_lettered", "malformed", "error", "timeout"), typer.colors.RED
    ),
}
#: A cell may go on after its state: `scheduled 2026-11-30 09:00:00`, `on hold: the rule is paused`.
_STATE: Final = re.compile(f"({'|'.join(sorted(_COLOURS, key=len, reverse=True))})(?![\\w-])")


def has_colour(stream: TextIO) -> bool:
    """Return whether a stream shows colours, and its user wants them."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, stream: TextIO, colour: str | None = None) -> str:
    """Return text in bold and in a colour, as it is to be written to a stream."""
    return typer.style(text, fg=colour, bold=True) if has_colour(stream) else text


def state_styled(cell: str, stream: TextIO) -> str:
    """Return a cell whose beginning, if it is a state with a colour, is in this colour."""
    found = _STATE.match(cell) if has_colour(stream) else None
    return cell if found is None else typer.style(found[0], fg=_COLOURS[found[0]]) + cell[found.end() :]
