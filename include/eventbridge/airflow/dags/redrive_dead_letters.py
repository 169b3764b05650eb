"""The Airflow DAG `eventbridge_redrive_dead_letters`: delivers dead letters again, one batch per run, until none is
left.

Its form is in eventbridge.airflow.forms.redrive_dead_letters, its own tasks are in eventbridge.airflow.redrive,
the others in eventbridge.airflow.tasks.
"""

from __future__ import annotations

from airflow.sdk import DAG

from eventbridge.airflow.forms.choices import choices
from eventbridge.airflow.forms.redrive_dead_letters import redrive_params
from eventbridge.airflow.names import PLAN_REDRIVE, REDRIVE_DAG
from eventbridge.airflow.push import slow_lane_pushes
from eventbridge.airflow.redrive import plan_redrive, trigger_next_run
from eventbridge.airflow.run_limit import run_limit
from eventbridge.airflow.schedule import BEGINNING, OWNER, RUN_TYPES
from eventbridge.airflow.settings import airflow_settings
from eventbridge.airflow.slow_lane import give_way
from eventbridge.airflow.tasks import batch_of, commit, route, schedule_retries, write_dead_letters

GUIDE = """
Delivers dead letters again: trigger the DAG and fill in the form. *Dry run*, which is on until you switch it off, logs
what would be taken, and what would be skipped and why.
The same requests are sent again, under the same delivery ids; with *Retransform* the events are routed by today's
rules. A run processes one batch of kind *redrive* and triggers the next run while dead letters are left. To stop a
redrive: `eventbridge dead-letters cancel REDRIVE`. `eventbridge dead-letters redrives` shows the results.
"""


def redrive_dead_letters() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=REDRIVE_DAG,
        description="Delivers dead letters again",
        doc_md=GUIDE,
        schedule=None,
        start_date=BEGINNING,
        catchup=False,
        allowed_run_types=RUN_TYPES,
        max_active_runs=1,
        max_active_tasks=64,
        dagrun_timeout=run_limit(airflow_settings()),
        default_args={"owner": OWNER, "pre_execute": give_way},
        params=redrive_params(choices()),
        tags=["eventbridge", "redrive"],
    ) as dag:
        batch_id = batch_of(PLAN_REDRIVE)
        chunk_ids = route(batch_id)
        pushed = slow_lane_pushes(batch_id).expand(chunk_id=chunk_ids)
        dead = write_dead_letters(batch_id)
        pending = schedule_retries(batch_id)

        plan_redrive() >> chunk_ids >> pushed >> dead >> pending
        [chunk_ids, dead, pending] >> commit(batch_id) >> trigger_next_run()
    return dag
