"""Gives each mapped push of a deliver DAG the pool and the weight of its chunk, as part of Airflow's cluster policy.

`eventbridge.airflow.airflow_policy` registers `place_push` with Airflow, which calls it in the scheduler and the
api-server, inside a transaction, for every task instance that is created, expanded or cleared.

Airflow does not pass the batch, but it is known: a unique index of the ledger allows a runner only one uncommitted
normal batch, and its DAG has at most one active run that delivers in stages, even next to a streaming task. So the
pushes that are being expanded belong to the chunks of the runner's routed batch, in the order of their map index. If
an old run is cleared, its pushes may get the placement of the current batch. They end at once, because their own batch
is settled.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eventbridge.airflow.names import PUSH, UNPLANNED_POOL, runner_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

log = logging.getLogger(__name__)

#: The weight of a push without a placement. It is lower than that of every rule, so that the push delays no other one.
UNPLANNED_WEIGHT = 100

#: The maximum time to wait for the ledger. This wait blocks Airflow's scheduler, and so the runs of every runner.
LIMIT_SECONDS = 0.5

#: The time for which a result is reused. One expansion calls the hook twice per map index within milliseconds. Only the
#: first of these calls queries the ledger, so a ledger that does not respond blocks the scheduler only once per
#: expansion.
_HOLD_SECONDS = 2.0


@dataclass(frozen=True)
class Placement:
    """The Airflow pool and priority weight of one push."""

    pool: str
    weight: int


UNPLANNED = Placement(UNPLANNED_POOL, UNPLANNED_WEIGHT)


def place_push(task_instance: Any, dag_run: Any = None) -> None:
    """Set `pool` and `priority_weight` of a mapped push in a deliver DAG. It ignores other tasks, and never raises."""
    try:
        runner = runner_of(task_instance.dag_id)
        if runner is None or task_instance.task_id != PUSH or task_instance.map_index < 0:
            return
        placement = _placements().placement(runner, task_instance.run_id, task_instance.map_index)
        task_instance.pool = placement.pool
        task_instance.priority_weight = placement.weight
    except Exception:
        log.exception("ALARM: the cluster policy failed; the push keeps the pool and weight of its DAG")


@functools.cache
def _placements() -> Placements:
    from eventbridge.airflow.settings import configured_settings

    return Placements(configured_settings().ledger_url)


class Placements:
    """Reads the pools and weights of a batch's chunks from the ledger, through its own engine and within 500 ms."""

    def __init__(self, ledger_url: str, limit_seconds: float = LIMIT_SECONDS) -> None:
        from eventbridge.ledger.engines.registry import engine_of

        self._ledger = engine_of(ledger_url)
        self._limit_seconds = limit_seconds
        self._engine: Engine | None = None
        self._cached: dict[tuple[str, str], tuple[float, Mapping[int, Placement]]] = {}

    def placement(self, runner: str, run_id: str, map_index: int) -> Placement:
        """Return the placement of one push. If the ledger has none, log an alarm and return UNPLANNED."""
        now = time.monotonic()
        cached = self._cached.get((runner, run_id))
        if cached is None or now - cached[0] > _HOLD_SECONDS:
            cached = (time.monotonic(), self._ask(runner, run_id))
            self._cached = {key: value for key, value in self._cached.items() if now - value[0] <= _HOLD_SECONDS}
            self._cached[runner, run_id] = cached
        return cached[1].get(map_index, UNPLANNED)

    def _ask(self, runner: str, run_id: str) -> Mapping[int, Placement]:
        why = "the runner has no routed batch"
        try:
            placements = self._query_in_time(runner)
        except Exception as error:
            placements, why = {}, f"the ledger: {type(error).__name__} {error}"
        if not placements:
            log.error(
                "ALARM: no placement for the pushes of runner %r, run %r (%s); they run in pool %s",
                runner,
                run_id,
                why,
                UNPLANNED_POOL,
            )
        return placements

    def _query_in_time(self, runner: str) -> Mapping[int, Placement]:
        if self._engine is None:  # this imports the driver, which can take as long as the limit on a busy host
            self._engine = self._ledger.reader(self._limit_seconds)
        if self._ledger.bounds_readers:
            # The query runs in this thread, and the database limits its duration. A query that was abandoned in another
            # thread would keep a file open while the scheduler forks a worker, and the worker's commits would then take
            # no lock (see ledger/database.py).
            return self._query(runner)
        return _call_within(self._limit_seconds, lambda: self._query(runner))

    def _query(self, runner: str) -> Mapping[int, Placement]:
        from eventbridge.ledger.chunks import PLACEMENTS_OF_RUNNER

        assert self._engine is not None
        with self._engine.connect() as connection:
            rows = connection.execute(PLACEMENTS_OF_RUNNER, {"of_runner": runner})
            return {row.map_index: Placement(row.pool, row.weight) for row in rows}


def _call_within(seconds: float, call: Callable[[], Mapping[int, Placement]]) -> Mapping[int, Placement]:
    """Return the result of `call`. If that takes longer than `seconds`, abandon the call and raise TimeoutError.

    The call runs in a thread, because no driver has one limit for connecting, waiting for a lock and reading. It is a
    daemon thread, so that a hanging call does not prevent the scheduler from ending.
    """
    results: list[Mapping[int, Placement]] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="eventbridge-policy", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no response within {seconds:g} s")
    return results[0]
