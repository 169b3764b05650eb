"""Defines the DAG `eventbridge_maintain_store`, which removes expired data once an hour."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, CronTriggerTimetable, task

from eventbridge.airflow.names import MAINTAIN_DAG
from eventbridge.airflow.schedule import dag_options
from eventbridge.airflow.settings import airflow_settings
from eventbridge.airflow.tasks import TASK, give_way, hide_traceback, stage

if TYPE_CHECKING:
    from eventbridge.config.settings import Settings

log = logging.getLogger(__name__)

GUIDE = """
Removes expired data from the store, the ledger and the embedded buses: deliveries, archive, dead letters and manifests.
Each of them has its own retention, which a bus's `retention` in the rule file or a setting `EVENTBRIDGE_RETENTION_*`
defines. The DAG also removes orphaned files of failed attempts. It keeps data that a pending delivery, a deferred
match, a replay or a redrive still needs. The task logs what it removed, and what it kept beyond its retention.

A run ends after `EVENTBRIDGE_MAINTAIN_TIMEOUT`, and the next one continues. Its task has the lowest weight of all tasks
and a lower CPU priority. `eventbridge maintain --dry-run` prints what a run would remove.
"""


def maintain_store() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=MAINTAIN_DAG,
        description="Removes expired data",
        doc_md=GUIDE,
        schedule=CronTriggerTimetable("17 * * * *", timezone="UTC"),
        max_active_runs=1,
        dagrun_timeout=maintain_limit(airflow_settings()),
        tags=["eventbridge", "maintain"],
        **dag_options(pre_execute=give_way),
    ) as dag:
        maintain()
    return dag


#: The weight is lower than that of every push, so that the task gets a slot only if no other task is waiting for one.
_TASK_OPTIONS: dict[str, Any] = TASK | {"priority_weight": -1_000}


def maintain_limit(settings: Settings) -> timedelta:
    """Return `dagrun_timeout`: the budget, plus five minutes for the step in progress when the budget ends."""
    return timedelta(seconds=settings.maintain_timeout + 300.0)


@task(**_TASK_OPTIONS, do_xcom_push=False)
@hide_traceback
def maintain() -> None:
    """Remove expired data for at most `maintain_timeout`. If that is not enough, the next run continues."""
    from eventbridge.upkeep.maintain import maintain as run

    with stage() as runtime:
        done = run(runtime)
    log.info("removed: %s", done)
