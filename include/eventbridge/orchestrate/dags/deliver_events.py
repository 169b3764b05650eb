"""One Airflow DAG a runner, `eventbridge_deliver_<runner>`: a run moves one batch from the bus to the targets.

The tasks are in eventbridge.orchestrate.tasks; the shape does not depend on the number of rules.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from eventbridge.orchestrate.names import LISTEN, STREAMING, deliver_dag_id, runner_subject
from eventbridge.orchestrate.push import pushes
from eventbridge.orchestrate.run_limit import run_limit
from eventbridge.orchestrate.schedule import BEGINNING, OWNER, RUN_TYPES, asset_of
from eventbridge.orchestrate.settings import airflow_settings
from eventbridge.orchestrate.streaming import STREAMING_GUIDE, streaming
from eventbridge.orchestrate.tasks import (
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
Moves what runner **{runner}** finds on its bus, one batch a run. The ledger owns the batch, not the run: a run that
dies is finished by the next one, so clearing or failing a run by hand loses nothing.

| task | does |
|---|---|
| listen | takes the unfinished batch or plans the next; makes absent pools; skips the rest if nothing waits |
| buffer | lands the events as Parquet, the archive |
| route | Spark: matches every rule, renders every delivery, cuts the chunks |
| push | one task a chunk, in the pool of its rule; a failed one is an everyday thing, what it left is pending |
| write_dead_letters | settles: one verdict a delivery; writes dead letters |
| schedule_retries | makes pending what is to be tried again; `eventbridge_retry_deliveries` takes it up when it is due
|
| commit | reconciles the batch, then moves the offsets; fails if there is a difference |

The watcher, a trigger in Airflow's triggerer, starts a run when events wait; `eventbridge_start_waiting_runs` starts
what it misses.
`eventbridge status` shows lag, batches and what is pending.
"""


def deliver_events(runner: str, task_seconds: float | None = None, warning: str | None = None) -> DAG:
    """Return the DAG of one runner; `task_seconds`: the seconds of one, None: batch mode. It shows the `warning`."""
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
        max_active_runs=1
        if task_seconds is None
        else 3,  # one is the standby at a streaming task's end, one may be dead unseen
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
