"""The first task of a runner in the mode express: it delivers events as they come, for a shift."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseOperator, Context

from eventbridge.orchestrate.names import EXPRESS

if TYPE_CHECKING:
    from eventbridge.stages.operate.express import Shift
    from eventbridge.stages.runtime.runtime import Runtime

#: How long a connection of Airflow's is taken for what it was: a target is opened at every read of the bus.
_CONNECTION_SECONDS: Final = 30.0
#: Longer than the lease of a shift whose process was killed.
_PATIENCE_SECONDS: Final = 8.0


#: What the DAG of a runner in this mode says of itself.
SHIFT_GUIDE = """
Delivers what runner **{runner}** finds on its bus as it comes: the task `express` stays for a shift of {shift:g} s, and
does the books of its windows itself. A shift without events ends sooner; the bell wakes the next one.

What waited for longer than `express.backlog` is handed over as one batch to the tasks after it, which are skipped
otherwise; then the next run goes on with a shift. A task that dies loses nothing: the next one finishes its window.
`eventbridge status` shows lag, batches and what is parked.
"""


class ExpressOperator(BaseOperator):
    """Delivers a runner's events for a shift; passes on the batch that the stages are to deliver, if there is one.

    An operator and not a decorated function, because only an operator has `on_kill`: Airflow's SIGTERM ends nothing
    by itself, and 5 s later comes SIGKILL.
    """

    ui_color = "#cfe2f3"

    def __init__(self, *, runner: str, **options: Any) -> None:
        super().__init__(**options)
        self.runner = runner
        self._stop = threading.Event()

    def execute(self, context: Context) -> None:
        """Deliver until the shift is over; then hand a backlog over, or skip the rest of the run."""
        from eventbridge.errors import ShiftTakenError
        from eventbridge.orchestrate.connections import remembered
        from eventbridge.orchestrate.tasks import confirmed_pools, stage, tell_batch
        from eventbridge.stages.ingest.listen import listen

        batch_id = None
        with stage(remembered(_CONNECTION_SECONDS)) as work:
            pools = confirmed_pools(work)
            shift = None
            if self._is_express(work):
                from eventbridge.stages.operate.express import anything_waits

                if not anything_waits(work, self.runner):
                    tell_batch(None)
                try:
                    shift = self._shift(work)
                except ShiftTakenError as error:
                    self.log.info("%s", error)
                    tell_batch(None)
            if shift is None or shift.backlog:
                batch_id = listen(work, self.runner, pools)
        tell_batch(batch_id)

    def on_kill(self) -> None:
        """Ask the shift to end: its window is closed first."""
        self._stop.set()

    def _is_express(self, work: Runtime) -> bool:
        """Return whether rules want a shift that can deliver them all; else they are delivered in stages."""
        from eventbridge.stages.operate.express_fit import express_warnings

        rules = work.rule_set().for_runner(self.runner)
        for warning in express_warnings(rules):
            self.log.warning("%s", warning)
            return False
        return rules.mode_of(self.runner).mode == "express"

    def _shift(self, work: Runtime) -> Shift:
        from eventbridge.orchestrate.tasks import existing_pools
        from eventbridge.stages.operate.express import deliver_express
        from eventbridge.stages.operate.shift_lease import Bounds

        said = work.rule_set().mode_of(self.runner).express
        bounds = Bounds(
            seconds=said.shift,
            idle_seconds=said.idle,
            backlog_seconds=said.backlog,
            patience_seconds=_PATIENCE_SECONDS,
            makes_retries=False,  # they have a DAG of their own
            pools=existing_pools,
        )
        shift = deliver_express(work, self.runner, self._stop, bounds)
        self.log.info("shift of runner %s: %s", self.runner, shift)
        return shift


def express(runner: str, **options: Any) -> ExpressOperator:
    """Return the task; after a fault of our infrastructure, or killed, it is back in a second."""
    options |= {"retry_delay": timedelta(seconds=1)}
    return ExpressOperator(task_id=EXPRESS, runner=runner, **options)
