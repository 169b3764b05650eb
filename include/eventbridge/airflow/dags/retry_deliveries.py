"""The Airflow DAG `eventbridge_retry_deliveries`: delivers pending deliveries that are due again, in the slow lane.

Its own tasks are in eventbridge.airflow.retry, the others in eventbridge.airflow.tasks.
"""

from __future__ import annotations

from airflow.sdk import DAG

from eventbridge.airflow.names import PLAN_RETRIES, RETRIES, RETRY_DAG
from eventbridge.airflow.push import slow_lane_pushes
from eventbridge.airflow.retry import begin_redrive, plan_retries, resume_replay, settle_stale
from eventbridge.airflow.run_limit import run_limit
from eventbridge.airflow.schedule import BEGINNING, OWNER, RUN_TYPES, asset_of
from eventbridge.airflow.settings import airflow_settings
from eventbridge.airflow.slow_lane import give_way
from eventbridge.airflow.tasks import batch_of, commit, route, schedule_retries, write_dead_letters

GUIDE = """
Delivers pending deliveries again when they are due, at most one chunk per target, or routes the deferred matches of
budgeted rules: one batch of kind *retry* per run, all pushes in the pool `eventbridge.retry`. Pending deliveries are
already routed, so route does nothing for them. If a run dies, `settle_stale` of a later run settles its batch; only
requests in flight may be sent twice. If no run of `eventbridge_replay_events` has processed a replay for minutes,
`resume_replay` triggers one. `resume_replay` and `begin_redrive` also start what `eventbridge serve` recorded. These
tasks are skipped if there is nothing to do.

The watcher, a trigger in Airflow's triggerer, starts a run when deliveries are due; `eventbridge_start_waiting_runs`
starts the runs that it misses. `eventbridge status` shows pending deliveries and since when they wait.
"""


def retry_deliveries() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=RETRY_DAG,
        description="Delivers pending deliveries again when they are due",
        doc_md=GUIDE,
        schedule=[asset_of(RETRIES)],
        start_date=BEGINNING,
        catchup=False,
        allowed_run_types=RUN_TYPES,
        max_active_runs=4,
        max_active_tasks=64,
        dagrun_timeout=run_limit(airflow_settings()),
        default_args={"owner": OWNER, "pre_execute": give_way},
        tags=["eventbridge", "retry"],
    ) as dag:
        batch_id = batch_of(PLAN_RETRIES)
        chunk_ids = route(batch_id)
        pushed = slow_lane_pushes(batch_id).expand(chunk_id=chunk_ids)
        dead = write_dead_letters(batch_id)
        pending = schedule_retries(batch_id)

        planned = plan_retries()
        planned >> [settle_stale(), resume_replay(), begin_redrive()]
        planned >> chunk_ids >> pushed >> dead >> pending
        [chunk_ids, dead, pending] >> commit(batch_id)
    return dag
