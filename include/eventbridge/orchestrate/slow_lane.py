"""How the tasks of retries and redrives let new deliveries go before them at the processor."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import Context

#: Where processors are short, a process of theirs gets a third of what one of the same worker gets; see sched(7).
NICENESS = 5


def give_way(_: Context) -> None:
    """Lower the priority of this process, which is a task's own, until it ends; a `pre_execute` of Airflow."""
    os.nice(NICENESS)
