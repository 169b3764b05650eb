"""Continues the replay of a cleared Airflow run, or begins another one."""

from __future__ import annotations

import re

from eventbridge.model.redelivery import Replay
from eventbridge.replay.plan import begin_replay
from eventbridge.replay.request import ReplayRequest
from eventbridge.runtime.runtime import Runtime


def asking(run: str, times: int) -> str:
    """Return the name under which a run requests its replay after it was cleared `times` times."""
    return f"{run} again {times}" if times else run


def asker_of(name: str) -> str:
    """Return the run of a name that `asking` returned."""
    return re.sub(r" again [0-9]+$", "", name)


def begin_or_go_on(runtime: Runtime, request: ReplayRequest, run: str, times: int) -> Replay:
    """Begin or continue the replay of a run that was cleared `times` times, and return it.

    The run's last replay continues under its id if it is paused (its run ran out of time, or a person paused it) and
    the request is the same. A replay that is still running, as its run was cleared while it waited, is cancelled, and
    so is one with another request; then, or if it has ended, another one begins.
    A retry returns the same replay. Raises UserError as begin_replay does.
    """
    name = asking(run, times)
    begun = runtime.ledger.replay_of_run(name)
    if begun is not None:
        return begun
    before = _asked_before(runtime, run, times)
    if before is not None and before.ended_at is None:
        if _is_the_same(before, request) and runtime.ledger.hand_over_replay(before.replay_id, name):
            return runtime.ledger.replay(before.replay_id)
        runtime.ledger.end_replay(before.replay_id, "cancelled")
    return begin_replay(runtime, request, name)


def _asked_before(runtime: Runtime, run: str, times: int) -> Replay | None:
    for earlier in reversed(range(times)):
        found = runtime.ledger.replay_of_run(asking(run, earlier))
        if found is not None:
            return found
    return None


def _is_the_same(replay: Replay, request: ReplayRequest) -> bool:
    asked = (
        request.bus,
        request.since,
        request.until,
        request.as_json(),
        request.rate,
        request.new_ids,
        request.skip_delivered,
    )
    had = (replay.bus, replay.since, replay.until, dict(replay.selection), replay.rate, replay.new_ids)
    return asked == (*had, replay.skip_delivered)
