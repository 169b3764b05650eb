"""What nobody moves on: batches and replays that runs left which died, and what a server without Airflow recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventbridge.model.recorded import RECORDED
from eventbridge.orchestrate.run_limit import run_limit

if TYPE_CHECKING:
    from eventbridge.model.redrive import Redrive
    from eventbridge.model.replay import Replay
    from eventbridge.stages.runtime.runtime import Runtime

#: What a replay's `run` begins with that `eventbridge replay` moves, in a process of its own.
_COMMAND = "command "


def orphaned_replay(runtime: Runtime) -> Replay | None:
    """Return the replay that has been left for longest, None if there is none; those of commands are never left.

    It is left if nobody has minded it for as long as two runs may take: the one that planned its last batch, and the
    next, which plans first. Runs that wait for a pool or for room mind it every few seconds.
    One that a server without Airflow recorded is left from the beginning, until somebody begins it.
    """
    now = runtime.ledger.now()
    before = now - 2 * run_limit(runtime.settings)
    found = (each for each in runtime.ledger.left_replays(now) if not each.run.startswith(_COMMAND))
    return next((each for each in found if each.next_at < before or _is_unbegun(each)), None)


def orphaned_redrive(runtime: Runtime) -> Redrive | None:
    """Return the oldest redrive that is left, of those that a server without Airflow recorded; None: there is none."""
    before = runtime.ledger.now() - 2 * run_limit(runtime.settings)
    found = runtime.ledger.recorded_redrives()
    return next((each for each in found if each.next_at < before or _is_unbegun(each)), None)


def _is_unbegun(each: Redrive | Replay) -> bool:
    """Return whether a server recorded it that has no Airflow, and nobody has minded it since."""
    return each.run.startswith(RECORDED) and each.next_at == each.started_at


def is_anything_stale(runtime: Runtime) -> bool:
    """Return whether `settle_stale` has something to do."""
    from eventbridge.stages.retry.plan import stale_batches

    return bool(stale_batches(runtime))
