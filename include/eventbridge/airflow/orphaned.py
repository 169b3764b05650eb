"""Finds orphaned work: batches and replays whose runs died, and requests that a server without Airflow recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventbridge.airflow.run_limit import run_limit
from eventbridge.model.redelivery import RECORDED

if TYPE_CHECKING:
    from eventbridge.model.redelivery import Redrive, Replay
    from eventbridge.runtime.runtime import Runtime

#: The prefix of a replay's `run` if `eventbridge replay` processes it, in its own process.
_COMMAND = "command "


def orphaned_replay(runtime: Runtime) -> Replay | None:
    """Return the replay that has been orphaned for longest, None if there is none; never one of a command.

    A replay is orphaned if no run has updated it for as long as two runs may take: the run that planned its last batch,
    and the next one, which plans first. Runs that wait for a pool or for capacity update it every few seconds.
    A replay that a server without Airflow recorded is orphaned until a run starts it.
    """
    now = runtime.ledger.now()
    before = now - 2 * run_limit(runtime.settings)
    found = (each for each in runtime.ledger.left_replays(now) if not each.run.startswith(_COMMAND))
    return next((each for each in found if each.next_at < before or _is_unbegun(each)), None)


def orphaned_redrive(runtime: Runtime) -> Redrive | None:
    """Return the oldest orphaned redrive that a server without Airflow recorded; None if there is none."""
    before = runtime.ledger.now() - 2 * run_limit(runtime.settings)
    found = runtime.ledger.recorded_redrives()
    return next((each for each in found if each.next_at < before or _is_unbegun(each)), None)


def _is_unbegun(each: Redrive | Replay) -> bool:
    """Return whether a server without Airflow recorded it, and no run has updated it since."""
    return each.run.startswith(RECORDED) and each.next_at == each.started_at


def is_anything_stale(runtime: Runtime) -> bool:
    """Return whether `settle_stale` has work."""
    from eventbridge.pipeline.retry.plan import stale_batches

    return bool(stale_batches(runtime))
