"""The Airflow DAG `eventbridge_retry_deliveries`: takes up what is pending and due, in the slow lane, and delivers it
again.

Its own tasks are in eventbridge.orchestrate.retry, those that it shares in eventbridge.orchestrate.tasks.
"""

from __future__ import annotations

from airflow.sdk import DAG

from eventbridge.orchestrate.names import PLAN_RETRIES, RETRIES, RETRY_DAG
from eventbridge.orchestrate.push import slow_lane_pushes
from eventbridge.orchestrate.retry import begin_redrive, plan_retries, resume_replay, settle_stale
from eventbridge.orchestrate.run_limit import run_limit
from eventbridge.orchestrate.schedule import BEGINNING, OWNER, RUN_TYPES, asset_of
from eventbridge.orchestrate.settings import airflow_settings
from eventbridge.orchestrate.slow_lane import give_way
from eventbridge.orchestrate.tasks import batch_of, commit, route, schedule_retries, write_dead_letters

GUIDE = """
Delivers again what is pending and due, at most one chunk a target, or routes what a budgeted rule had no time for: a
batch of kind *retry* a run, all pushes in the pool `eventbridge.retry`. Pending deliveries are routed already: for them
route does nothing. A run that dies leaves its batch to `settle_stale` of a later one; nothing is sent twice for it but
what was in flight. A replay that no run of `eventbridge_replay_events` has moved for minutes gets another one by
`resume_replay`; what `eventbridge serve` recorded gets its first by it, or by `begin_redrive`. They are skipped while
nothing is left.

The watcher, a trigger in Airflow's triggerer, starts a run when something falls due; `eventbridge_start_waiting_runs`
starts what it misses.
`eventbridge status` shows what is pending and since when.
"""


def retry_deliveries() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=RETRY_DAG,
        description="Delivers again what is pending and due",
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
