"""The first task of a runner in streaming mode: it delivers events as they come."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseOperator, Context

from eventbridge.orchestrate.names import STREAMING
from eventbridge.orchestrate.plain_failure import plain_failures
from eventbridge.orchestrate.task_stop import task_stop

if TYPE_CHECKING:
    from eventbridge.stages.operate.streaming import StreamingSummary
    from eventbridge.stages.runtime.runtime import Runtime

#: How long a connection of Airflow's is taken for what it was: a target is opened at every read of the bus.
_CONNECTION_SECONDS: Final = 30.0
#: Longer than the lease of a streaming task whose process was killed; and how long a run is the standby of a streaming
#: task that ends soon.
_PATIENCE_SECONDS: Final = 8.0
_STANDING_SECONDS: Final = 60.0
#: A try takes Airflow two seconds to start, which keeps tries apart; when they are used up, the watcher starts a run.
_RETRY_DELAY: Final = timedelta(milliseconds=100)

#: What the DAG of a runner in this mode says of itself.
STREAMING_GUIDE = """
Delivers what runner **{runner}** finds on its bus as it comes: task `streaming` stays for {task_seconds:g} s, and
reconciles its batches itself. A streaming task without events ends sooner; the watcher starts the next one.

Near its end a streaming task asks for the next one: the watcher starts a second run, the
standby, which continues at the end of a
open batch. What waited for longer than `streaming.backlog` is handed over as one batch to the tasks after it, which are
skipped otherwise; then the next run streams again. A task that dies loses nothing: the next one finishes its
open batch. `eventbridge status` shows lag, batches and what is pending.
"""


class StreamingOperator(BaseOperator):
    """Delivers a runner's events as a streaming task; passes on the batch that the stages are to deliver, if there is
    one.

    An operator and not a decorated function, because only an operator has `on_kill`: Airflow's SIGTERM ends nothing
    by itself, and SIGKILL follows 5 s later.
    """

    ui_color = "#cfe2f3"

    def __init__(self, *, runner: str, **options: Any) -> None:
        super().__init__(**options)
        self.runner = runner
        self._stop = task_stop()

    def execute(self, context: Context) -> None:
        """Deliver until the streaming task is over; then hand a backlog over, or skip the rest of the run."""
        from eventbridge.errors import StreamingLeaseTakenError
        from eventbridge.orchestrate.connections import Remembered
        from eventbridge.orchestrate.tasks import confirmed_pools, stage, tell_batch
        from eventbridge.stages.ingest.listen import listen

        batch_id = None
        dag_id, ti = context["dag"].dag_id, context["ti"]

        def beside() -> bool:
            return ti.get_dr_count(dag_id=dag_id, states=["running"]) > 1

        with plain_failures(), stage(Remembered(_CONNECTION_SECONDS)) as runtime:
            pools = confirmed_pools(runtime)
            summary = None
            if self._is_streaming(runtime):
                from eventbridge.stages.operate.streaming_waiting import anything_waits, in_stages

                is_standby = self._is_standby(runtime)
                waits = anything_waits(runtime, self.runner) and not (in_stages(runtime, self.runner) and beside())
                if not (is_standby or waits):
                    tell_batch(None)
                try:
                    summary = self._run_streaming_task(context, runtime, beside, is_standby=is_standby)
                except StreamingLeaseTakenError as error:
                    self.log.info("%s", error)
                    tell_batch(None)
            elif beside():  # its tasks may be at work on the batch
                tell_batch(None)
            if summary is None or summary.backlog:
                batch_id = listen(runtime, self.runner, pools)
        tell_batch(batch_id)

    def on_kill(self) -> None:
        """Ask the streaming task to end; it records first what it sent."""
        self._stop.set()

    def _is_streaming(self, runtime: Runtime) -> bool:
        return runtime.rule_set().mode_of(self.runner).mode == "streaming"

    def _is_standby(self, runtime: Runtime) -> bool:
        """Return whether a streaming task at work ends soon and wants this process to go on."""
        lease = runtime.ledger.streaming_lease(self.runner)
        return lease is not None and lease.wants_next and lease.standby(runtime.ledger.now()) is None

    def _run_streaming_task(
        self, context: Context, runtime: Runtime, beside: Callable[[], bool], *, is_standby: bool
    ) -> StreamingSummary:
        from eventbridge.orchestrate.batch_sentences import of_streaming_task
        from eventbridge.orchestrate.run_note import note_run
        from eventbridge.orchestrate.tasks import existing_pools, log_report
        from eventbridge.stages.operate.streaming import deliver_streaming
        from eventbridge.stages.operate.streaming_lease import Bounds

        said = runtime.rule_set().mode_of(self.runner).streaming
        bounds = Bounds(
            seconds=said.task_duration,
            idle_seconds=said.idle,
            backlog_seconds=said.backlog,
            patience_seconds=_STANDING_SECONDS if is_standby else _PATIENCE_SECONDS,
            makes_retries=False,  # they have a DAG of their own
            pools=existing_pools,
            requests_standby=True,
            is_standby=is_standby,
            others_at_work=beside,
        )
        began = runtime.ledger.now()
        summary = deliver_streaming(runtime, self.runner, self._stop, bounds)
        found = of_streaming_task(runtime, self.runner, began, summary)
        log_report(found)
        if found.is_trouble:
            note_run(context, found.text)
        return summary


def streaming(runner: str, **options: Any) -> StreamingOperator:
    """Return the task; after a fault of our infrastructure, or killed, it is back as soon as Airflow starts it."""
    options |= {"retry_delay": _RETRY_DELAY}
    return StreamingOperator(task_id=STREAMING, runner=runner, **options)
