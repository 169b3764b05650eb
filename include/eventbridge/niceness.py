"""Niceness of processes, by which urgent work gets the processor before work that can wait; see sched(7)."""

from __future__ import annotations

import os
from functools import cache

#: If processors are short, a retry or redrive process gets a third of the time of another one of the same worker.
NICENESS = 5
#: A process of old work (replay, backtest) gets a tenth. Not 19: a process that holds the ledger's lock must progress.
OLD_NICENESS = 10


@cache
def give_way_once(niceness: int) -> None:
    """Lower the priority of this process permanently, once; its existing threads keep theirs."""
    os.nice(niceness)
