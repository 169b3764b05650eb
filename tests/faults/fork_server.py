"""Runs stages of a world in forked processes that die at the n-th call which can lose data.

A program: reads one JSON object a line (stage, folder, die_at or null, later in seconds), forks, and prints the exit
code of the child. Everything is imported before the first fork: a fork costs milliseconds, an import seconds.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas  # noqa: F401 - pyarrow imports it at its first table
import pyarrow.parquet  # noqa: F401
from faults import world

from eventbridge import faults

#: Exit code of a process that was stopped by its fault.
DIED = 77

#: To die before a read is to die after the call before it: nothing has changed in between.
_READS = {"ledger.select", "store.get", "store.open", "store.exists", "store.list", "bus.read"}


def main() -> None:
    """Serve until standard input ends."""
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os._exit(_run(order))
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _run(order: dict[str, Any]) -> int:
    try:
        folder = Path(order["folder"])
        os.chdir(folder)
        if order["die_at"] is not None:
            faults.install(_killer(order["die_at"]))
        work = world.open_world(folder, timedelta(seconds=order["later"]))
        world.BODIES[order["stage"]](work)
        work.close()
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _killer(die_at: int) -> Callable[[str], None]:
    count = 0
    lock = threading.Lock()

    def hook(point: str) -> None:
        nonlocal count
        if point in _READS:
            return
        with lock:
            count += 1
            if count == die_at:
                os._exit(DIED)

    return hook


if __name__ == "__main__":
    main()
