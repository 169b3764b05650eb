"""The Airflow DAG `eventbridge_maintain_store`: removes what is past its retention, every hour.

Its task is in eventbridge.airflow.maintain.
"""

from __future__ import annotations

from airflow.sdk import DAG, CronTriggerTimetable

from eventbridge.airflow.maintain import maintain, maintain_limit
from eventbridge.airflow.names import MAINTAIN_DAG
from eventbridge.airflow.schedule import BEGINNING, OWNER, RUN_TYPES
from eventbridge.airflow.settings import airflow_settings
from eventbridge.airflow.slow_lane import give_way

GUIDE = """
Removes what is past its retention from the store, the ledger and the embedded buses: deliveries, archive, dead letters
and manifests, each after its own time (`retention` of a bus in its rule file; `EVENTBRIDGE_RETENTION_*`). It also
removes lost files of failed attempts. It keeps what a pending delivery, a deferred match, a replay or a redrive still
needs. The task logs what it removed, and what it kept past its retention.

A run ends after `EVENTBRIDGE_MAINTAIN_TIMEOUT`, and the next one continues. Its task has the lowest weight of all tasks
and a lower CPU priority. `eventbridge maintain --dry-run` prints what a run would remove.
"""


def maintain_store() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=MAINTAIN_DAG,
        description="Removes what is past its retention",
        doc_md=GUIDE,
        schedule=CronTriggerTimetable("17 * * * *", timezone="UTC"),
        start_date=BEGINNING,
        catchup=False,
        allowed_run_types=RUN_TYPES,
        max_active_runs=1,
        dagrun_timeout=maintain_limit(airflow_settings()),
        default_args={"owner": OWNER, "pre_execute": give_way},
        tags=["eventbridge", "maintain"],
    ) as dag:
        maintain()
    return dag
