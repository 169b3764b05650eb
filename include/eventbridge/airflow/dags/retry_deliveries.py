"""Defines the DAG `eventbridge_retry_deliveries`, which sends pending deliveries once they are due."""

from __future__ import annotations

import logging

from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowSkipException

from eventbridge.airflow.names import (
    BEGIN_REDRIVE,
    PLAN_RETRIES,
    REDRIVE_DAG,
    REPLAY_DAG,
    RESUME_REPLAY,
    RETRIES,
    RETRY_DAG,
    SETTLE_STALE,
)
from eventbridge.airflow.next_run import next_run
from eventbridge.airflow.push import slow_lane_pushes
from eventbridge.airflow.schedule import asset_of, dag_options
from eventbridge.airflow.settings import airflow_settings, run_limit
from eventbridge.airflow.tasks import (
    TASK,
    batch_of,
    confirmed_pools,
    give_way,
    hide_traceback,
    process_batch,
    share_batch_id,
    stage,
)

log = logging.getLogger(__name__)

GUIDE = """
Each run processes one batch of kind *retry*, whose pushes run in the pool `eventbridge.retry`. The batch sends pending
deliveries that are due, or routes and sends deferred matches. A target gets one chunk, or several while it is healthy
and there are free slots. Pending deliveries are already routed, so `route` does nothing for them.

If a run dies, `settle_stale` of a later run settles its batch, and only requests in flight may be sent twice. If no run
of `eventbridge_replay_events` has processed a replay for some minutes, `resume_replay` triggers one. `resume_replay`
and `begin_redrive` also start the replays and redrives that `eventbridge serve` recorded. Tasks without work are
skipped.

The watcher, a trigger in Airflow's triggerer, starts a run when deliveries are due; `eventbridge_start_waiting_runs`
starts the runs that it misses. `eventbridge status` shows pending deliveries and when they are due.
"""


def retry_deliveries() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=RETRY_DAG,
        description="Sends pending deliveries when they are due",
        doc_md=GUIDE,
        schedule=[asset_of(RETRIES)],
        max_active_runs=4,
        max_active_tasks=64,
        dagrun_timeout=run_limit(airflow_settings()),
        tags=["eventbridge", "retry"],
        **dag_options(pre_execute=give_way),
    ) as dag:
        batch_id = batch_of(PLAN_RETRIES)
        planned = plan_retries()
        planned >> [settle_stale(), resume_replay(), begin_redrive()]
        process_batch(planned, batch_id, slow_lane_pushes(batch_id))
    return dag


@task(task_id=PLAN_RETRIES, **TASK, do_xcom_push=False)
@hide_traceback
def plan_retries() -> None:
    """Plan a batch of the pending deliveries or deferred matches that are due, and skip tasks without work."""
    from eventbridge.airflow.stuck import is_anything_stale, orphaned_redrive, orphaned_replay
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
@hide_traceback
def settle_stale() -> None:
    """Settle and commit the retry, redrive and replay batches whose runs died, even if planning failed."""
    from eventbridge.pipeline.retry.plan import settle_stale as run

    with stage() as runtime:
        settled = run(runtime)
    for batch_id in settled:
        log.warning("settled batch %s, whose run ended before settling it", batch_id)
    if not settled:
        log.info("there is no batch to settle")


@task(task_id=RESUME_REPLAY, trigger_rule="all_done", **TASK, do_xcom_push=False)
@hide_traceback
def resume_replay() -> None:
    """Trigger `eventbridge_replay_events` for the replay that has been orphaned longest, unless runs are queued."""
    from eventbridge.airflow.dags.replay_events import trigger_for_replay
    from eventbridge.airflow.stuck import orphaned_replay

    with stage() as runtime:
        replay = orphaned_replay(runtime)
        if replay is None:
            raise AirflowSkipException("there is no orphaned replay")
        if _queued_replays():  # a queued run may be the next one of this replay
            raise AirflowSkipException(f"runs of {REPLAY_DAG} are queued and go first")
        now = runtime.ledger.now()
        runtime.ledger.replays.defer(replay.replay_id, now)
    log.warning("replay %s has been orphaned since %s; triggering another run", replay.replay_id, replay.next_at)
    raise trigger_for_replay(replay.replay_id, f"orphaned_{now:%Y%m%dT%H%M%S}")


@task(task_id=BEGIN_REDRIVE, trigger_rule="all_done", **TASK, do_xcom_push=False)
@hide_traceback
def begin_redrive() -> None:
    """Trigger `eventbridge_redrive_dead_letters` for the oldest orphaned redrive that a server recorded."""
    from eventbridge.airflow.stuck import orphaned_redrive

    with stage() as runtime:
        redrive = orphaned_redrive(runtime)
        if redrive is None:
            raise AirflowSkipException("there is no orphaned redrive")
        now = runtime.ledger.now()
        runtime.ledger.redrives.defer(redrive.redrive_id, now)
    log.info("a server recorded redrive %s; triggering a run of %s for it", redrive.redrive_id, REDRIVE_DAG)
    name = f"redrive__{redrive.redrive_id}__orphaned_{now:%Y%m%dT%H%M%S}"
    raise next_run(REDRIVE_DAG, name, {"redrive_id": redrive.redrive_id})


def _queued_replays() -> int:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    return RuntimeTaskInstance.get_dr_count(REPLAY_DAG, states=["queued"])
