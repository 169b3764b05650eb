"""A route worker over its lifetime, and a fresh one: their memory, and their CPU time before the first match."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow.parquet as pq
from benchmarks.match.kernel import BATCH, Pass
from benchmarks.match.remote import BenchError


class WorkerSubject:
    """A process that takes frozen rule sets as Spark's workers do, and matches with what it makes of them."""

    def __init__(self, store_uri: str) -> None:
        import numba
        import pyarrow

        imported = _resident()
        # What comes along when they are first used, by whatever program: pandas, and SciPy where it is installed.
        pyarrow.array([0])
        numba.njit(lambda number: number)(0)
        self._before = _resident()
        self._taken_along = self._before - imported
        from eventbridge.routing.warm_up import compile_ahead
        from eventbridge.store.open import open_store

        compile_ahead()
        self._store = open_store(store_uri)
        self._hash = ""

    def take(self, rule_set: str) -> float:
        """Read a frozen rule set and make its program, beside the one before it; return the CPU-seconds it takes."""
        from eventbridge.routing.program import route_program
        from eventbridge.store.rule_sets import frozen_rules

        begun = time.process_time()
        self._program = route_program(rule_set, frozen_rules(self._store, rule_set), "bench")
        seconds = time.process_time() - begun
        # As a worker of route does once it has routed with it.
        gc.freeze()
        return seconds

    def match(self, file: Path) -> Pass:
        """Match the events of a Parquet file once, batch by batch as they are read."""
        seconds, count, matches = 0.0, 0, 0
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(BATCH, columns=["body"]):
                begun = time.process_time()
                matches += len(self._program.matcher.match(batch.column(0)).rules)
                seconds += time.process_time() - begun
                count += len(batch)
        return Pass(count, seconds, matches)

    def megabytes(self) -> float:
        """Return the resident memory that came since both libraries were loaded, with what they take along."""
        return (_resident() - self._before) / 2**20

    def taken_along(self) -> float:
        """Return the megabytes that both libraries took along at their first use."""
        return self._taken_along / 2**20


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


class Memory(NamedTuple):
    """What a worker holds, in MB over the interpreter with pyarrow and numba, as it goes on.

    `taken_along` is what these two load at their first use, and not counted.
    """

    taken_along: float
    ready: float
    with_rules: float
    after_events: float


class Fresh(NamedTuple):
    """What a worker takes from its fork to its first slice, and the CPU-seconds of what it is forked from."""

    forked_from: float
    cpu_seconds: float
    seconds: float


def fresh_worker(asked: str) -> Fresh:
    """Fork a worker as Spark does, which routes the first slice of a job; return what it took.

    Compiled code is on disk already. Raises BenchError if the worker fails.
    """
    command = [sys.executable, "-m", "benchmarks.match.fresh_worker", asked]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
    if ended.returncode:
        raise BenchError(f"The fresh worker ended with exit code {ended.returncode}; its error is above.")
    return Fresh(**json.loads(ended.stdout))
