"""One Airflow DAG per runner, `eventbridge_deliver_<runner>`: a run delivers one batch from the bus to the targets.

The tasks are in eventbridge.airflow.tasks. The shape of the DAG does not depend on the number of rules.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from eventbridge.airflow.names import LISTEN, STREAMING, deliver_dag_id, runner_subject
from eventbridge.airflow.push import pushes
from eventbridge.airflow.run_limit import run_limit
from eventbridge.airflow.schedule import BEGINNING, OWNER, RUN_TYPES, asset_of
from eventbridge.airflow.settings import airflow_settings
from eventbridge.airflow.streaming import STREAMING_GUIDE, streaming
from eventbridge.airflow.tasks import (
    STAGE,
    batch_of,
    buffer,
    commit,
    listen,
    route,
    schedule_retries,
    write_dead_letters,
)

GUIDE = """
Delivers the events of runner **{runner}**, one batch per run. The ledger owns the batch, not the run: if a run dies,
the next one finishes its batch. So clearing a run or marking it failed loses nothing.

| task | does |
|---|---|
| listen | takes the unfinished batch or plans the next; creates missing pools; skips the other tasks if nothing waits |
| buffer | lands the events as Parquet, the archive |
| route | on Spark: matches all rules, transforms events into deliveries, cuts chunks |
| push | one task per chunk, in the pool of its rule; if it fails, its undelivered deliveries become pending |
| write_dead_letters | settles the batch: one verdict per delivery; writes dead letters |
| schedule_retries | makes failed deliveries pending; `eventbridge_retry_deliveries` retries them when they are due |
| commit | reconciles the batch, then commits the offsets; fails if there is a difference |

The watcher, a trigger in Airflow's triggerer, starts a run when events wait; `eventbridge_start_waiting_runs` starts
the runs that it misses. `eventbridge status` shows lag, batches and pending deliveries.
"""


def deliver_events(runner: str, task_seconds: float | None = None, warning: str | None = None) -> DAG:
    """Return the DAG of one runner.

    `task_seconds`: the duration of a streaming task; None: batch mode. The DAG's documentation shows the `warning`.
    """
    guide = (
        GUIDE.format(runner=runner)
        if task_seconds is None
        else STREAMING_GUIDE.format(runner=runner, task_seconds=task_seconds)
    )
    if task_seconds is not None and warning is not None:
        guide = f"**{warning}.**\n\n{guide}"
    with DAG(
        dag_id=deliver_dag_id(runner),
        description=f"Delivers the events of runner {runner}",
        doc_md=guide,
        schedule=[asset_of(runner_subject(runner))],
        start_date=BEGINNING,
        catchup=False,
        allowed_run_types=RUN_TYPES,
        # Streaming: a running task, its standby, and one that has died unnoticed.
        max_active_runs=1 if task_seconds is None else 3,
        max_active_tasks=64,
        dagrun_timeout=run_limit(airflow_settings()) + timedelta(seconds=task_seconds or 0.0),
        default_args={"owner": OWNER},
        tags=["eventbridge", "deliver"],
    ) as dag:
        batch_id = batch_of(LISTEN, STREAMING)
        chunk_ids = route(batch_id)
        pushed = pushes(batch_id).expand(chunk_id=chunk_ids)
        dead = write_dead_letters(batch_id)
        pending = schedule_retries(batch_id)

        first = listen(runner) if task_seconds is None else streaming(runner, **STAGE)
        first >> buffer(batch_id) >> chunk_ids >> pushed >> dead >> pending
        # Not downstream of push: a failed push must not keep its batch from being committed.
        [chunk_ids, dead, pending] >> commit(batch_id)
    return dag
