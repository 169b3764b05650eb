"""The task of the DAG `eventbridge_start_waiting_runs`: it emits an asset event for each DAG that needs a run."""

from __future__ import annotations

import logging

from airflow.sdk import AssetAlias, get_current_context, task

from eventbridge.airflow.names import WAITING_ALIAS
from eventbridge.airflow.schedule import asset_of
from eventbridge.airflow.tasks import STAGE, stage

log = logging.getLogger(__name__)


@task(task_id="start_runs", **STAGE, do_xcom_push=False, outlets=[AssetAlias(WAITING_ALIAS)])
def start_runs() -> None:
    """Start a run of each DAG that has work, by an event of its asset."""
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
    log.info("starting runs for: %s", ", ".join(subjects) or "none, as nothing waits")
