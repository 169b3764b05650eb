"""Reads what an installation stored, as tests compare it: dead letters in whole, and the stats of all time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eventbridge.dead_letters.reader import select_dead_letters
from eventbridge.dead_letters.selection import Selection
from eventbridge.ledger import Ledger
from eventbridge.ledger.stats import stats_ever
from eventbridge.model.stat import Scope, Stat
from eventbridge.runtime.runtime import Runtime


def dead_letters(
    runtime: Runtime, selection: Selection | None = None, *, whole: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the columns of the selected dead letters; see `select_dead_letters`."""
    return (each.record for each in select_dead_letters(runtime, selection, whole=whole))


def sums_ever(ledger: Ledger, scope: Scope) -> list[Stat]:
    """Return the all-time sums of each key of a scope; they only grow."""
    with ledger.database.reading() as connection:
        return stats_ever(connection, scope)
