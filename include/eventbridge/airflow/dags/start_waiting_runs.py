"""Defines the DAG `eventbridge_start_waiting_runs`, the fallback that starts runs that the watcher did not start."""

from __future__ import annotations

import logging
from datetime import timedelta

from airflow.sdk import DAG, AssetAlias, get_current_context, task

from eventbridge.airflow.names import FALLBACK_DAG, WAITING_ALIAS
from eventbridge.airflow.schedule import asset_of, dag_options, fallback_schedule
from eventbridge.airflow.tasks import STAGE, stage

log = logging.getLogger(__name__)

GUIDE = """
Starts a run of each `eventbridge_deliver_<runner>` whose bus has waiting events, or whose batch is not finished, and a
run of `eventbridge_retry_deliveries` if deliveries are due. The watcher, a trigger in Airflow's triggerer, normally
starts these runs within a second. This DAG is its fallback. It runs every ten minutes. While no triggerer runs the
watcher, or while a bus does not respond to the watcher, it runs every minute and starts a run of each of these DAGs.

If you pause this DAG, nothing replaces a watcher that has stopped.
"""


def start_waiting_runs() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=FALLBACK_DAG,
        description="Starts runs that the watcher did not start",
        doc_md=GUIDE,
        schedule=fallback_schedule(),
        max_active_runs=1,
        dagrun_timeout=timedelta(seconds=120),
        tags=["eventbridge", "deliver"],
        **dag_options(),
    ) as dag:
        start_runs()
    return dag


@task(task_id="start_runs", **STAGE, do_xcom_push=False, outlets=[AssetAlias(WAITING_ALIAS)])
def start_runs() -> None:
    """Start runs of the DAGs that need one, by emitting an event of each DAG's asset."""
    from eventbridge.airflow.watch import Watch

    with stage() as runtime:
        watch = Watch(runtime)
        try:
            subjects = watch.subjects_to_start()
        finally:
            watch.close_sources()
    outlet_events = get_current_context()["outlet_events"]
    for subject in subjects:
        outlet_events[AssetAlias(WAITING_ALIAS)].add(asset_of(subject))
    log.info("starting runs for: %s", ", ".join(subjects) or "none, because nothing is waiting")
