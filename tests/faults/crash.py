"""Runs a stage of a world in a process of its own that dies at the n-th call which can lose data."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from faults.world import open_world

from eventbridge import faults
from eventbridge.stages.workplace import Workplace

#: Exit code of a process that was stopped by its fault.
DIED = 77
_SECONDS = 60.0

_CONTEXT = multiprocessing.get_context("forkserver")
# imported once, in the server that every process is forked from: a fork costs milliseconds, an import seconds
_CONTEXT.set_forkserver_preload(["faults.world"])


def run(
    stage: Callable[[Workplace], None], folder: Path, *, die_at: int | None = None, later: timedelta = timedelta(0)
) -> int:
    """Run `stage` in a world and return its exit code: DIED if it reached its `die_at`-th call, 0 if it ended."""
    process = _CONTEXT.Process(target=_child, args=(stage, folder, die_at, later))
    process.start()
    process.join(_SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError(f"{stage.__name__} at call {die_at} did not end within {_SECONDS} s")
    return process.exitcode


def _child(stage: Callable[[Workplace], None], folder: Path, die_at: int | None, later: timedelta) -> None:
    if die_at is not None:
        faults.install(_killer(die_at))
    work = open_world(folder, later)
    stage(work)
    work.close()
    os._exit(0)


def _killer(die_at: int) -> Callable[[str], None]:
    count = 0
    lock = threading.Lock()

    def hook(point: str) -> None:
        nonlocal count
        with lock:
            count += 1
            if count == die_at:
                os._exit(DIED)

    return hook
