"""The Airflow DAG `eventbridge_replay_events`: delivers archived events again, one batch per run.

Its form is in eventbridge.airflow.forms.replay_events, its own tasks are in eventbridge.airflow.replay,
the others in eventbridge.airflow.tasks.
"""

from __future__ import annotations

from airflow.sdk import DAG

from eventbridge.airflow.forms.choices import choices
from eventbridge.airflow.forms.replay_events import replay_params
from eventbridge.airflow.names import PLAN_REPLAY, REPLAY_DAG
from eventbridge.airflow.replay import plan_replay, replay_pushes, trigger_next_run
from eventbridge.airflow.run_limit import run_limit
from eventbridge.airflow.schedule import BEGINNING, OWNER, RUN_TYPES
from eventbridge.airflow.settings import airflow_settings
from eventbridge.airflow.slow_lane import give_way_as_old
from eventbridge.airflow.tasks import batch_of, commit, route, schedule_retries, write_dead_letters

GUIDE = """
Delivers archived events again: trigger the DAG and fill in the form. *Dry run*, which is on until you switch it off,
logs how many events would be taken, their targets, and samples. To deliver to all rules of the bus choose `*` under
*Rules*. Events go through today's rules, or through those of the time, under new delivery ids or the same.
A run processes one batch of kind *replay*, its pushes in pool `eventbridge.replay`, and triggers the next run until the
end of the archive. `eventbridge replay pause`, `cancel` and `show REPLAY` stop a replay and show its results. Marking
a run failed does not stop the replay: some minutes later `eventbridge_retry_deliveries` starts another run for it.
"""


def replay_events() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=REPLAY_DAG,
        description="Delivers archived events again",
        doc_md=GUIDE,
        schedule=None,
        start_date=BEGINNING,
        catchup=False,
        allowed_run_types=RUN_TYPES,
        max_active_runs=4,
        max_active_tasks=64,
        dagrun_timeout=run_limit(airflow_settings()),
        default_args={"owner": OWNER, "pre_execute": give_way_as_old},
        params=replay_params(choices()),
        tags=["eventbridge", "replay"],
    ) as dag:
        batch_id = batch_of(PLAN_REPLAY)
        chunk_ids = route(batch_id)
        pushed = replay_pushes(batch_id).expand(chunk_id=chunk_ids)
        dead = write_dead_letters(batch_id)
        pending = schedule_retries(batch_id)

        plan_replay() >> chunk_ids >> pushed >> dead >> pending
        [chunk_ids, dead, pending] >> commit(batch_id) >> trigger_next_run()
    return dag
