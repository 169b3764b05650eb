"""The function to which long work reports how far it is. The core calls it; only the command line shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

#: Gets how much is done and, if it is known, how much there is. The work calls it after each step, in one thread.
Progress: TypeAlias = Callable[[int, int | None], None]


def unreported(done: int, total: int | None) -> None:
    """Report nothing: the default of work whose caller does not show its progress."""
