"""Airflow's cluster policy: gives each mapped push of a deliver DAG the pool and the weight of its chunk.

`eventbridge.orchestrate.airflow_policy` registers `place_push` with Airflow, which calls it in the scheduler and the
api-server, inside a transaction, for every task instance that is made, expanded or cleared.

How it knows the batch: a runner has at most one uncommitted normal batch (the ledger's unique index) and its DAG at
most one active run that delivers in stages, whatever a streaming task does beside it (streaming.py): the pushes that
are being expanded are the chunks of the runner's routed batch, in map index order. A push of a cleared old run may be
given a place of today's batch; it finds its own batch past and ends.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eventbridge.orchestrate.names import PUSH, UNPLANNED_POOL, runner_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

log = logging.getLogger(__name__)

#: Below every rule's weight: what nobody planned must not hold up what somebody did.
UNPLANNED_WEIGHT = 100

#: Airflow's scheduler waits meanwhile, for every runner.
LIMIT_SECONDS = 0.5

#: One expansion calls the hook twice per map index within milliseconds: one query serves them all,
#: and a ledger that does not respond costs the scheduler its limit once per expansion.
_HOLD_SECONDS = 2.0


@dataclass(frozen=True)
class Placement:
    """The Airflow pool and priority weight of one push."""

    pool: str
    weight: int


UNPLANNED = Placement(UNPLANNED_POOL, UNPLANNED_WEIGHT)


def place_push(task_instance: Any, dag_run: Any = None) -> None:
    """Set `pool` and `priority_weight` of a mapped push; leaves every other task instance alone. Never raises."""
    try:
        runner = runner_of(task_instance.dag_id)
        if runner is None or task_instance.task_id != PUSH or task_instance.map_index < 0:
            return
        place = _places().of(runner, task_instance.run_id, task_instance.map_index)
        task_instance.pool = place.pool
        task_instance.priority_weight = place.weight
    except Exception:
        log.exception("ALARM: the cluster policy failed; the push keeps what its DAG says")


@functools.cache
def _places() -> Placements:
    from eventbridge.orchestrate.settings import configured_settings

    return Placements(configured_settings().ledger_url)


class Placements:
    """Asks the ledger, through an engine of its own and within 500 ms, where the chunks of a batch are to run."""

    def __init__(self, ledger_url: str, limit_seconds: float = LIMIT_SECONDS) -> None:
        from eventbridge.ledger.engines.registry import engine_of

        self._ledger = engine_of(ledger_url)
        self._limit_seconds = limit_seconds
        self._engine: Engine | None = None
        self._held: dict[tuple[str, str], tuple[float, Mapping[int, Placement]]] = {}

    def of(self, runner: str, run_id: str, map_index: int) -> Placement:
        """Return the place of one push.

        Pool `eventbridge.unplanned`, with a logged alarm, where the ledger has none.
        """
        now = time.monotonic()
        held = self._held.get((runner, run_id))
        if held is None or now - held[0] > _HOLD_SECONDS:
            held = (time.monotonic(), self._ask(runner, run_id))
            self._held = {key: value for key, value in self._held.items() if now - value[0] <= _HOLD_SECONDS}
            self._held[runner, run_id] = held
        return held[1].get(map_index, UNPLANNED)

    def _ask(self, runner: str, run_id: str) -> Mapping[int, Placement]:
        why = "it has no routed batch"
        try:
            places = self._query_in_time(runner)
        except Exception as error:
            places, why = {}, f"the ledger: {type(error).__name__} {error}"
        if not places:
            log.error(
                "ALARM: it is not known where the pushes of runner %r, run %r, are to run (%s); they go to pool %s",
                runner,
                run_id,
                why,
                UNPLANNED_POOL,
            )
        return places

    def _query_in_time(self, runner: str) -> Mapping[int, Placement]:
        if self._engine is None:  # it imports the driver, once, which takes as long as the limit on a busy host
            self._engine = self._ledger.reader(self._limit_seconds)
        if self._ledger.bounds_readers:
            # In this thread, and bounded by the database itself: an abandoned query would hold a file open
            # while the scheduler forks a worker, whose own commits would then take no lock (see ledger/database.py).
            return self._query(runner)
        return _within(self._limit_seconds, lambda: self._query(runner))

    def _query(self, runner: str) -> Mapping[int, Placement]:
        from eventbridge.ledger.statements.chunks import PLACES_OF_RUNNER

        assert self._engine is not None
        with self._engine.connect() as connection:
            rows = connection.execute(PLACES_OF_RUNNER, {"of_runner": runner})
            return {row.map_index: Placement(row.pool, row.weight) for row in rows}


def _within(seconds: float, call: Callable[[], Mapping[int, Placement]]) -> Mapping[int, Placement]:
    """Return what `call` returns; raises TimeoutError after `seconds` and leaves the call behind.

    A thread, because no driver keeps one limit over connecting, waiting for a lock and reading; a daemon, so that
    one that hangs does not keep the scheduler from ending.
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
