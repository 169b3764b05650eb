"""How work that can wait lets work that cannot go before it at the processor: by niceness, see sched(7)."""

from __future__ import annotations

import os
from functools import cache

#: Where processors are short, a process of retries or redrives gets a third of what one of the same worker gets.
NICENESS = 5
#: And one that does old work (replay, backtest) a tenth. Not 19: what holds the ledger's lock must get on.
OLD_NICENESS = 10


@cache
def give_way_once(niceness: int) -> None:
    """Lower the priority of this process for good, once; threads that it made before keep theirs."""
    os.nice(niceness)
