"""Defines a DAG for each runner, `eventbridge_deliver_<runner>`, which delivers events from the bus to the targets.

In batch mode a run delivers one batch; in streaming mode it is one streaming task. The other tasks are in
eventbridge.airflow.tasks. The shape of the DAG does not depend on the number of rules.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import DAG, BaseOperator, Context

from eventbridge.airflow.names import LISTEN, STREAMING, deliver_dag_id, runner_subject
from eventbridge.airflow.push import pushes, task_stop
from eventbridge.airflow.schedule import asset_of, dag_options
from eventbridge.airflow.settings import airflow_settings, run_limit
from eventbridge.airflow.tasks import STAGE, batch_of, buffer, listen, plain_failures, process_batch

if TYPE_CHECKING:
    from eventbridge.runtime.runtime import Runtime
    from eventbridge.streaming.task import StreamingSummary

GUIDE = """
Delivers the events of runner **{runner}**, one batch per run. The batch belongs to the ledger, not to the run: if a run
dies, the next one finishes its batch. So clearing a run or marking it failed loses nothing.

| task | does |
|---|---|
| listen | takes the unfinished batch or plans the next; creates missing pools; if there is no batch, skips the rest |
| buffer | lands the events as Parquet, the archive |
| route | on Spark: matches all rules, transforms events into deliveries, cuts chunks |
| push | delivers one chunk, in the pool of its rule; if it fails, its undelivered deliveries become pending |
| write_dead_letters | settles the batch: one status per delivery; writes dead letters |
| schedule_retries | makes failed deliveries pending; `eventbridge_retry_deliveries` retries them when they are due |
| commit | reconciles the batch, then commits the offsets; fails if there is a difference |

The watcher, a trigger in Airflow's triggerer, starts a run when events are waiting; `eventbridge_start_waiting_runs`
starts the runs that it misses. `eventbridge status` shows lag, batches and pending deliveries.
"""


def deliver_events(runner: str, task_seconds: float | None = None, warning: str | None = None) -> DAG:
    """Return the DAG of one runner.

    `task_seconds` is the duration of a streaming task, or None in batch mode. In streaming mode, the DAG's
    documentation begins with `warning`.
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
        # Three in streaming mode: a streaming task, its standby, and one that has died but that Airflow still counts.
        max_active_runs=1 if task_seconds is None else 3,
        max_active_tasks=64,
        dagrun_timeout=run_limit(airflow_settings()) + timedelta(seconds=task_seconds or 0.0),
        tags=["eventbridge", "deliver"],
        **dag_options(),
    ) as dag:
        batch_id = batch_of(LISTEN, STREAMING)
        first = listen(runner) if task_seconds is None else streaming(runner, **STAGE)
        landed = buffer(batch_id)
        first >> landed
        process_batch(landed, batch_id, pushes(batch_id))
    return dag


#: The time for which an Airflow connection is cached. Without a cache, opening the targets at every read of the bus
#: would request it each time.
_CONNECTION_SECONDS: Final = 30.0
#: The maximum wait for the lease: long enough for the lease of a killed process to expire, and longer for the standby
#: of a streaming task that ends soon.
_PLAN_TIMEOUT_SECONDS: Final = 8.0
_STANDBY_SECONDS: Final = 60.0
#: A short delay is enough, because Airflow takes two seconds to start a retry. After the last retry, the watcher starts
#: another run.
_RETRY_DELAY: Final = timedelta(milliseconds=100)

#: The documentation of a runner's DAG in streaming mode.
STREAMING_GUIDE = """
Delivers the events of runner **{runner}** as they arrive. The task `streaming` runs for {task_seconds:g} s, and commits
its own batches. A streaming task without events ends sooner, and the watcher starts the next one when events arrive.

Near its end, a streaming task requests a standby: the watcher starts a second run, which takes over at the end of a
batch. Events that have waited for longer than `streaming.backlog` go as one batch to the tasks after `streaming`, and
the next run streams again. Without such a backlog, these tasks are skipped. If a streaming task dies, nothing is lost,
because the next one finishes its open batch. `eventbridge status` shows lag, batches and pending deliveries.
"""


class StreamingOperator(BaseOperator):
    """Delivers a runner's events as a streaming task, and hands a backlog to the stages as a batch.

    It is an operator and not a decorated function because only an operator has `on_kill`. Without that method, SIGTERM
    from Airflow would have no effect, and SIGKILL follows 5 s later.
    """

    ui_color = "#cfe2f3"

    def __init__(self, *, runner: str, **options: Any) -> None:
        super().__init__(**options)
        self.runner = runner
        self._stop = task_stop()
        self._summary: StreamingSummary | None = None

    def execute(self, context: Context) -> None:
        """Deliver until the streaming task ends. Then plan a batch of the backlog, or skip the rest of the run."""
        from eventbridge.airflow.connections import CachedConnections
        from eventbridge.airflow.tasks import confirmed_pools, share_batch_id, stage
        from eventbridge.errors import StreamingLeaseTakenError
        from eventbridge.pipeline.ingest.listen import listen

        batch_id = None
        dag_id, ti = context["dag"].dag_id, context["ti"]

        def has_other_run() -> bool:
            return ti.get_dr_count(dag_id=dag_id, states=["running"]) > 1

        with plain_failures(), stage(CachedConnections(_CONNECTION_SECONDS)) as runtime:
            pools = confirmed_pools(runtime)
            summary = None
            if self._is_streaming(runtime):
                from eventbridge.streaming.lease import anything_waits, is_delivered_in_stages

                is_standby = self._is_standby(runtime)
                waits = anything_waits(runtime, self.runner) and not (
                    is_delivered_in_stages(runtime, self.runner) and has_other_run()
                )
                if not (is_standby or waits):
                    share_batch_id(None)
                try:
                    summary = self._run_streaming_task(context, runtime, has_other_run, is_standby=is_standby)
                except StreamingLeaseTakenError as error:
                    self.log.info("%s", error)
                    share_batch_id(None)
            elif has_other_run():  # the tasks of the other run may be processing the batch
                share_batch_id(None)
            if summary is None or summary.backlog:
                batch_id = listen(runtime, self.runner, pools)
        share_batch_id(batch_id)

    def get_openlineage_facets_on_complete(self, _: Any) -> Any:
        """Return the lineage of the task. Only OpenLineage's provider calls this, after the task has ended."""
        from eventbridge.airflow.lineage import streaming_lineage

        return streaming_lineage(self.runner, self._summary)

    def on_kill(self) -> None:
        """Request that the streaming task ends. It records its attempts first."""
        self._stop.set()

    def _is_streaming(self, runtime: Runtime) -> bool:
        return runtime.rule_set().mode_of(self.runner).mode == "streaming"

    def _is_standby(self, runtime: Runtime) -> bool:
        """Return whether a running streaming task ends soon and has no standby yet."""
        lease = runtime.ledger.streaming.lease(self.runner)
        return lease is not None and lease.wants_next and lease.standby(runtime.ledger.now()) is None

    def _run_streaming_task(
        self, context: Context, runtime: Runtime, has_other_run: Callable[[], bool], *, is_standby: bool
    ) -> StreamingSummary:
        from eventbridge.airflow.airflow_api import note_run
        from eventbridge.airflow.sentences import streaming_task_report
        from eventbridge.airflow.tasks import existing_pools, log_report
        from eventbridge.streaming.lease import Bounds
        from eventbridge.streaming.task import deliver_streaming

        configured = runtime.rule_set().mode_of(self.runner).streaming
        bounds = Bounds(
            seconds=configured.task_duration,
            idle_seconds=configured.idle,
            backlog_seconds=configured.backlog,
            patience_seconds=_STANDBY_SECONDS if is_standby else _PLAN_TIMEOUT_SECONDS,
            makes_retries=False,  # retries have their own DAG
            pools=existing_pools,
            requests_standby=True,
            is_standby=is_standby,
            others_at_work=has_other_run,
        )
        began = runtime.ledger.now()
        summary = self._summary = deliver_streaming(runtime, self.runner, self._stop, bounds)
        found = streaming_task_report(runtime, self.runner, began, summary)
        log_report(found)
        if found.is_warning:
            note_run(context, found.text)
        return summary


def streaming(runner: str, **options: Any) -> StreamingOperator:
    """Return the `streaming` task of a runner. After an error or a kill, Airflow retries it almost immediately."""
    options |= {"retry_delay": _RETRY_DELAY}
    return StreamingOperator(task_id=STREAMING, runner=runner, **options)
