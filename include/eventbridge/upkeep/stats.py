"""Folds stats into hours, days and a total, so that their size is bounded and their sums stay the same."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from eventbridge.model.stat import Grain, Scope
from eventbridge.upkeep.run import Run

#: How long stats are kept before they are folded, by scope: a bus has few, rules' targets may be thousands.
KEPT: Final[Mapping[Scope, Mapping[Grain, timedelta]]] = {
    "bus": {"minute": timedelta(hours=26), "hour": timedelta(days=32), "day": timedelta(days=800)},
    "target": {"minute": timedelta(hours=3), "hour": timedelta(days=8), "day": timedelta(days=400)},
}
#: Stats of a scope that are kept at most; if there are more, those older than a half, a quarter ... of the time fold.
MOST_ROWS: Final = 1_000_000

_LONGER: Final[Mapping[Grain, Grain]] = {"minute": "hour", "hour": "day", "day": "ever"}
#: How often the time is halved: in the end minutes are folded as soon as they are complete.
_HALVINGS: Final = 8


def fold_stats(run: Run, most_rows: int = MOST_ROWS) -> None:
    """Fold old stats, and newer ones if a scope has more rows than `most_rows`; a dry run changes nothing."""
    if run.dry_run:
        return
    for scope, kept in KEPT.items():
        for halved in range(_HALVINGS):
            for grain, age in kept.items():
                if not _fold(run, scope, grain, age / 2**halved):
                    return
            if run.runtime.ledger.stat_rows(scope) <= most_rows:
                break


def _fold(run: Run, scope: Scope, grain: Grain, age: timedelta) -> bool:
    """Fold the stats of a grain that are older than an age; False: the time of the run is over."""
    while run.runtime.ledger.fold_stats(scope, grain, _LONGER[grain], run.now - age) is not None:
        run.progressed()
        if run.is_over():
            return False
    return True
