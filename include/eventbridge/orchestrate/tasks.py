"""The tasks that several DAGs share: each is one call into `eventbridge.stages`, made where it runs.

Imports of stages, Spark and Arrow stand inside the tasks: a DAG file is parsed often and must be cheap.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped

from eventbridge.errors import OperatorError, PackageMissing, RuleFileError, UserError
from eventbridge.orchestrate import batch_sentences
from eventbridge.orchestrate.batch_sentences import TaskReport
from eventbridge.orchestrate.names import BATCH_ID, LISTEN
from eventbridge.orchestrate.plain_failure import NOT_TRIED_AGAIN, plainly
from eventbridge.orchestrate.run_note import note_run
from eventbridge.orchestrate.settings import airflow_settings
from eventbridge.orchestrate.slow_spark import slow_spark

if TYPE_CHECKING:
    from eventbridge.config.connection import Connection
    from eventbridge.decision.chunking import PoolSlots
    from eventbridge.orchestrate.pools import AirflowPools
    from eventbridge.stages.runtime.runtime import Runtime

log = logging.getLogger(__name__)

#: How every task but push is run: it is short and holds up its run, so it goes before all pushes, and a fault of
#: our infrastructure (ledger, store, bus, Spark) is tried again three times.
STAGE: dict[str, Any] = {
    "retries": 3,
    "retry_delay": timedelta(seconds=5),
    "retry_policy": NOT_TRIED_AGAIN,
    "priority_weight": 1_000,
    "weight_rule": "absolute",
}

#: The same for a decorated function: it logs one sentence of what it did, and what it returns says nothing more.
TASK: dict[str, Any] = STAGE | {"show_return_value_in_logs": False}


@contextmanager
def stage(connections: Callable[[str], Connection] | None = None) -> Iterator[Runtime]:
    """Open the runtime for one stage; what a person must fix fails the task at once, without further tries.

    `connections` None: Airflow is asked for each, each time.
    """
    from eventbridge.orchestrate.connections import airflow_connection
    from eventbridge.scan.progress import telling_progress
    from eventbridge.stages.runtime.runtime import Runtime
    from eventbridge.telemetry.chosen import chosen_telemetry

    # This process ends with its task: no garbage collection need look through what it began with, for 0.3 s.
    gc.freeze()
    try:
        look_up = connections or airflow_connection
        runtime = Runtime.open(airflow_settings(), look_up, telemetry=chosen_telemetry(os.environ))
        try:
            with telling_progress(log.info):
                yield runtime
        finally:
            runtime.close()
    except (UserError, OperatorError) as error:
        raise AirflowFailException(str(error)) from None
    except ModuleNotFoundError as error:
        raise AirflowFailException(str(PackageMissing.of(error) or error)) from None


@task(task_id=LISTEN, **TASK, do_xcom_push=False)
@plainly
def listen(runner: str) -> None:
    """Take the runner's unfinished batch or plan the next one; with nothing to do, skip the rest of the run."""
    from eventbridge.stages.ingest.listen import listen as run

    with stage() as runtime:
        batch_id = run(runtime, runner, confirmed_pools(runtime))
    tell_batch(batch_id)


@task(**TASK, do_xcom_push=False)
@plainly
def buffer(batch_id: str) -> None:
    """Land the batch's events as Parquet: the archive."""
    from eventbridge.orchestrate.spark import open_lander
    from eventbridge.stages.ingest.buffer import buffer as run

    if _has(batch_id):
        with stage() as runtime:
            run(runtime, batch_id, open_lander)
            log_report(batch_sentences.of_landing(runtime, batch_id))


@task(**TASK, multiple_outputs=False)
@plainly
def route(batch_id: str) -> list[int]:
    """Match and transform on Spark, cut chunks; returns those that are handed out, one push each."""
    from eventbridge.orchestrate.spark import open_router
    from eventbridge.stages.route.stage import route as run

    if not _has(batch_id):
        return []
    with stage() as runtime:
        router = open_router(runtime)
        with slow_spark(log.info):
            chunk_ids = run(runtime, batch_id, router, existing_pools())
        log_report(batch_sentences.of_routing(runtime, batch_id, len(chunk_ids)))
        return chunk_ids


@task(trigger_rule="all_done", **TASK, do_xcom_push=False)
@plainly
def write_dead_letters(batch_id: str) -> None:
    """Settle the batch, one verdict per delivery, and write dead letters; whatever became of the pushes."""
    from eventbridge.stages.settle.dead_letters import write_dead_letters as run

    if _has(batch_id):
        with stage() as runtime:
            run(runtime, batch_id)
            log_report(batch_sentences.of_dead_letters(runtime, batch_id))


@task(trigger_rule="all_done", **TASK, do_xcom_push=False)
@plainly
def schedule_retries(batch_id: str) -> None:
    """Make pending what is to be tried again."""
    from eventbridge.stages.settle.pending import schedule_retries as run

    if _has(batch_id):
        with stage() as runtime:
            run(runtime, batch_id)
            log_report(batch_sentences.of_pending(runtime, batch_id))


@task(trigger_rule="none_failed", **TASK, do_xcom_push=False)
@plainly
def commit(batch_id: str) -> None:
    """Reconcile the batch and move the offsets; not downstream of push: a failed push is an everyday thing."""
    from eventbridge.stages.commit.stage import commit as run

    if not _has(batch_id):
        return
    with stage() as runtime:
        if not run(runtime, batch_id):
            log.warning("batch %s is not settled yet, so nothing is committed", batch_id)
            return
        found = batch_sentences.of_commit(runtime, batch_id)
    log_report(found)
    if found.is_trouble:
        note_run(get_current_context(), found.text)


def _has(batch_id: str) -> bool:
    """Return whether the run has a batch; without one a task says so and does nothing."""
    if not batch_id:
        log.info("this run has no batch, so there is nothing to do")
    return bool(batch_id)


def log_report(found: TaskReport) -> None:
    """Log what a task did; a warning if somebody may want to look."""
    log.log(logging.WARNING if found.is_trouble else logging.INFO, "%s", found.text)


def confirmed_pools(runtime: Runtime) -> dict[str, PoolSlots]:
    """Make sure of the pools today's rules want and return those that exist; none, with an alarm, if Airflow is mute.

    A pool that is not confirmed is not named: its pushes then run in `default_pool`, which is always there.
    With errors in the rule files none is made: who plans a new batch raises them, an unfinished one is finished.
    """
    from eventbridge.orchestrate.pools import apply_slots

    try:
        rules = runtime.rule_set()
    except RuleFileError as error:
        log.error("ALARM: no new batch can be planned: %s", error)
        return existing_pools()
    return _pools(lambda airflow: apply_slots(runtime.ledger, airflow, rules))


def existing_pools() -> dict[str, PoolSlots]:
    """Return the pools that exist, without a look at today's rules: a batch goes on while somebody edits them."""
    return _pools(lambda airflow: airflow.pools())


def _pools(ask: Callable[[AirflowPools], dict[str, PoolSlots]]) -> dict[str, PoolSlots]:
    from eventbridge.orchestrate.airflow_api import CONNECTION_ID, AirflowError
    from eventbridge.orchestrate.connections import airflow_connection
    from eventbridge.orchestrate.pools import AirflowPools

    try:
        with AirflowPools(airflow_connection(CONNECTION_ID)) as airflow:
            return ask(airflow)
    except AirflowError as error:
        log.error("ALARM: no pool can be confirmed (%s)", error)
        return {}


def tell_batch(batch_id: str | None, beside: Mapping[str, bool] = MappingProxyType({})) -> None:
    """Tell the other tasks of the run their batch; None: skip them all.

    `beside`: tasks that have nothing to do with the batch, and whether they have something to do.
    """
    context = get_current_context()
    idle = {name for name, is_needed in beside.items() if not is_needed}
    if batch_id is None:
        log.info("nothing waits, so this run has nothing to do")
        idle |= context["task"].get_flat_relative_ids(upstream=False) - beside.keys()
    else:
        log.info("batch %s is taken up", batch_id)
        context["ti"].xcom_push(key=BATCH_ID, value=batch_id)
    if idle:
        raise DownstreamTasksSkipped(tasks=sorted(idle))  # type: ignore[no-untyped-call]


def end_run(context: Any, but: str = "") -> None:
    """Skip the rest of a run, but for one task."""
    rest = sorted(context["task"].get_flat_relative_ids(upstream=False) - {but})
    raise DownstreamTasksSkipped(tasks=rest)  # type: ignore[no-untyped-call]


def batch_of(*first: str) -> str:
    """Return the template of the batch that a run's first task took up, "" if it took none.

    A template and not that task's output, because an output would make every reader its direct downstream. Of several
    tasks one began the run: a task's own process does not know which.
    """
    pulled = " or ".join(f"ti.xcom_pull(task_ids='{name}', key='{BATCH_ID}')" for name in first)
    return f"{{{{ {pulled} or '' }}}}"
