"""The tasks of the DAG `eventbridge_retry_deliveries`: its batch, and the work of runs that died."""

from __future__ import annotations

import logging

from airflow.sdk import task
from airflow.sdk.exceptions import AirflowSkipException

from eventbridge.airflow.names import BEGIN_REDRIVE, PLAN_RETRIES, REDRIVE_DAG, REPLAY_DAG, RESUME_REPLAY, SETTLE_STALE
from eventbridge.airflow.next_run import next_run
from eventbridge.airflow.plain_failure import without_traceback
from eventbridge.airflow.tasks import TASK, confirmed_pools, share_batch_id, stage

log = logging.getLogger(__name__)


@task(task_id=PLAN_RETRIES, **TASK, do_xcom_push=False)
@without_traceback
def plan_retries() -> None:
    """Plan a batch of the pending deliveries or deferred matches that are due, and skip the tasks without work."""
    from eventbridge.airflow.orphaned import is_anything_stale, orphaned_redrive, orphaned_replay
    from eventbridge.pipeline.retry.deferred import plan_due

    with stage() as runtime:
        batch_id = plan_due(runtime, pools=confirmed_pools(runtime))
        beside = {
            SETTLE_STALE: is_anything_stale(runtime),
            RESUME_REPLAY: orphaned_replay(runtime) is not None,
            BEGIN_REDRIVE: orphaned_redrive(runtime) is not None,
        }
    share_batch_id(batch_id, beside)


@task(task_id=SETTLE_STALE, trigger_rule="all_done", **TASK, do_xcom_push=False)
@without_traceback
def settle_stale() -> None:
    """Settle and commit the retry batches whose runs died, also if planning failed."""
    from eventbridge.pipeline.retry.plan import settle_stale as run

    with stage() as runtime:
        settled = run(runtime)
    for batch_id in settled:
        log.warning("settled batch %s, whose run ended before settling it", batch_id)
    if not settled:
        log.info("no batch to settle: none is past its deadline")


@task(task_id=RESUME_REPLAY, trigger_rule="all_done", **TASK, do_xcom_push=False)
@without_traceback
def resume_replay() -> None:
    """Trigger `eventbridge_replay_events` for the replay that has been orphaned for longest, unless its runs are
    queued.
    """
    from eventbridge.airflow.orphaned import orphaned_replay
    from eventbridge.airflow.replay import run_of_replay

    with stage() as runtime:
        replay = orphaned_replay(runtime)
        if replay is None:
            raise AirflowSkipException("there is no orphaned replay")
        if _queued_replays():  # one of them may be the next run of this replay
            raise AirflowSkipException(f"runs of {REPLAY_DAG} are queued and go first")
        now = runtime.ledger.now()
        runtime.ledger.defer_replay(replay.replay_id, now)
    log.warning("replay %s has been orphaned since %s; triggering another run", replay.replay_id, replay.next_at)
    raise run_of_replay(replay.replay_id, f"orphaned_{now:%Y%m%dT%H%M%S}")


@task(task_id=BEGIN_REDRIVE, trigger_rule="all_done", **TASK, do_xcom_push=False)
@without_traceback
def begin_redrive() -> None:
    """Trigger `eventbridge_redrive_dead_letters` for the oldest redrive that a server recorded and no run has
    started.
    """
    from eventbridge.airflow.orphaned import orphaned_redrive

    with stage() as runtime:
        redrive = orphaned_redrive(runtime)
        if redrive is None:
            raise AirflowSkipException("no redrive waits to be started")
        now = runtime.ledger.now()
        runtime.ledger.defer_redrive(redrive.redrive_id, now)
    log.info("redrive %s was recorded by a server; triggering a run of %s", redrive.redrive_id, REDRIVE_DAG)
    name = f"redrive__{redrive.redrive_id}__orphaned_{now:%Y%m%dT%H%M%S}"
    raise next_run(REDRIVE_DAG, name, {"redrive_id": redrive.redrive_id})


def _queued_replays() -> int:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    return RuntimeTaskInstance.get_dr_count(REPLAY_DAG, states=["queued"])
