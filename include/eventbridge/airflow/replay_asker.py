"""Cancels a replay whose run of `eventbridge_replay_archive` has failed.

The trigger of that run cancels the replay when the run is marked failed. If no triggerer has picked the trigger up -
none runs, or the run waited for less than a second or two - the next batch of the replay cancels it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from eventbridge.airflow.names import ARCHIVE_DAG

if TYPE_CHECKING:
    from eventbridge.model.redelivery import Replay
    from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)

#: Returns the state of a run of `eventbridge_replay_archive` by its id; None if it is unknown, or if there is no such
#: run.
StateOfRun = Callable[[str], str | None]


def state_of_archive_run(run_id: str) -> str | None:
    """Return the state of a run of `eventbridge_replay_archive`, for a running task; None if Airflow does not know
    it.
    """
    from airflow.sdk.exceptions import AirflowRuntimeError
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    try:
        return RuntimeTaskInstance.get_dagrun_state(ARCHIVE_DAG, run_id)  # a str and an Enum: compare it only
    except AirflowRuntimeError as error:
        log.warning("cannot read the state of run %s of %s, which started this replay: %s", run_id, ARCHIVE_DAG, error)
        return None


def cancel_unwanted(runtime: Runtime, replay_id: str, state_of_run: StateOfRun = state_of_archive_run) -> bool:
    """Cancel a running replay whose run of `eventbridge_replay_archive` has failed; return whether it was cancelled."""
    replay = runtime.ledger.replay(replay_id)
    if replay.state != "running" or not _asker_failed(replay, state_of_run):
        return False
    log.warning("replay %s cancelled: %s has failed", replay_id, replay.run)
    return runtime.ledger.end_replay(replay_id, "cancelled")


def resume_for(runtime: Runtime, replay: Replay, run: str, state_of_run: StateOfRun = state_of_archive_run) -> None:
    """Resume a paused replay for a person's run of `eventbridge_replay_events`; leave any other replay as it is.

    If its run of `eventbridge_replay_archive` has failed, for instance because it waited too long, the replay belongs
    to this run from now on.
    """
    if replay.state != "paused":
        return
    if _asker_failed(replay, state_of_run):
        runtime.ledger.hand_over_replay(replay.replay_id, run)
    else:
        runtime.ledger.set_replay_state(replay.replay_id, "paused", "running")


def _asker_failed(replay: Replay, state_of_run: StateOfRun) -> bool:
    from eventbridge.replay.plan import asker_of

    dag_id, _, run_id = asker_of(replay.run).partition(" ")
    return dag_id == ARCHIVE_DAG and state_of_run(run_id) == "failed"
