"""What runs that died left behind: batches to settle, and replays that nobody moves on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventbridge.orchestrate.run_limit import run_limit

if TYPE_CHECKING:
    from eventbridge.model.replay import Replay
    from eventbridge.stages.runtime.runtime import Runtime

#: What a replay's `run` begins with that `eventbridge replay` moves, in a process of its own.
_COMMAND = "command "


def left_replay(work: Runtime) -> Replay | None:
    """Return the replay that has been left for longest, None if there is none; those of commands are never left.

    It is left if nobody has minded it for as long as two runs may take: the one that planned its last batch, and the
    next, which plans first. Runs that wait for a pool or for room mind it every few seconds.
    """
    before = work.ledger.now() - 2 * run_limit(work.settings)
    return next((each for each in work.ledger.left_replays(before) if not each.run.startswith(_COMMAND)), None)


def is_anything_stale(work: Runtime) -> bool:
    """Return whether `settle_stale` has something to do."""
    from eventbridge.stages.retry.plan import stale_batches

    return bool(stale_batches(work))
