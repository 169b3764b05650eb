"""`replays pause`, `resume` and `cancel` by the state of a replay; no Spark is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eventbridge.cli.replays import ReplayOptions
from eventbridge.config.settings import Settings
from eventbridge.replay.plan import begin_replay
from eventbridge.runtime.open import open_runtime


def test_a_cancelled_replay_is_not_resumed(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """Nothing of it is in progress: that is an error, which names the command for a new replay."""
    runtime = open_runtime(Settings.from_mapping(delivered.environ), {})
    begun = begin_replay(
        runtime,
        ReplayOptions(since="1h").written_request("orders").read(runtime.ledger.now(), runtime.rule_set()),
        "a test",
    )
    runtime.close()
    name = begun.replay_id[:8]

    assert (
        eventbridge("replays", "pause", name).out
        == f"Replay {begun.replay_id} paused. It plans no further batch until you resume it.\n"
    )
    assert (
        eventbridge("replays", "cancel", name).out
        == f"Replay {begun.replay_id} cancelled. It plans no further batch.\n"
    )
    resumed = eventbridge("replays", "resume", name)

    assert (resumed.code, resumed.out) == (2, "")
    assert resumed.err == (
        f"Error: replay {begun.replay_id} is cancelled, and none of its batches is in progress: "
        "there is nothing to continue. `eventbridge replays start orders --from TIME` starts a new one\n"
    )
