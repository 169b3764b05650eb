"""The tasks that several DAGs share, each of which runs one stage of `eventbridge.pipeline`.

Stages, Spark and Arrow are imported inside the tasks, because DAG files are parsed often, and importing them is slow.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped

from eventbridge.airflow import sentences
from eventbridge.airflow.airflow_api import note_run
from eventbridge.airflow.names import BATCH_ID, LISTEN
from eventbridge.airflow.sentences import TaskReport
from eventbridge.airflow.settings import airflow_settings
from eventbridge.errors import OperatorError, PackageMissing, RuleFileError, UserError
from eventbridge.processes import NICENESS, OLD_NICENESS, lower_priority_once

if TYPE_CHECKING:
    from airflow.sdk import Context

    from eventbridge.airflow.pools import AirflowPools
    from eventbridge.config.connection import Connection
    from eventbridge.policy.chunking import PoolSlots
    from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class PlainFailure(SystemExit):
    """Ends a task without a traceback or a retry, after the task has logged an error that an operator must fix.

    If a task raises an exception, including AirflowFailException, Airflow logs the stack. For SystemExit it logs only
    the exit code. It retries a task that exits, unless the task's retry policy forbids it.
    """


#: The retry policy of all tasks except push. There is no retry after PlainFailure. After other errors, `retries`
#: applies.
NO_RETRY_POLICY = ExceptionRetryPolicy(
    rules=[RetryRule(exception=PlainFailure, action=RetryAction.FAIL, reason="a person must act first")]
)


@contextmanager
def plain_failures() -> Iterator[None]:
    """Log the message of an AirflowFailException as an error, and raise PlainFailure instead."""
    try:
        yield
    except AirflowFailException as error:
        log.error("%s", error)
        raise PlainFailure(1) from None


def hide_traceback(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Wrap the function of a task in `plain_failures`."""

    @functools.wraps(function)
    def run(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        with plain_failures():
            return function(*args, **kwargs)

    return run


#: The options of every task except push. The rest of the run waits for such a task, so it gets a slot before all
#: pushes. It is retried three times after an error that no user must fix, such as an outage of the ledger or of Spark.
STAGE: dict[str, Any] = {
    "retries": 3,
    "retry_delay": timedelta(seconds=5),
    "retry_policy": NO_RETRY_POLICY,
    "priority_weight": 1_000,
    "weight_rule": "absolute",
}

#: The options of a decorated function. The function logs its own result, so Airflow does not log the return value.
TASK: dict[str, Any] = STAGE | {"show_return_value_in_logs": False}


@contextmanager
def stage(connections: Callable[[str], Connection] | None = None) -> Iterator[Runtime]:
    """Open the runtime for one stage, and close it at the end. An error that a user must fix prevents a retry.

    `connections` looks up connections. If it is None, each lookup is a request to Airflow.
    """
    from eventbridge.airflow.connections import airflow_connection
    from eventbridge.matching.scan.progress import telling_progress
    from eventbridge.runtime.open import open_runtime
    from eventbridge.telemetry.selection import telemetry_from_environment

    # The process ends with its task, so garbage collection need not spend 0.3 s on scanning the existing objects.
    gc.freeze()
    try:
        look_up = connections or airflow_connection
        runtime = open_runtime(airflow_settings(), look_up, telemetry=telemetry_from_environment(os.environ))
        try:
            with telling_progress(log.info):
                yield runtime
        finally:
            runtime.close()
    except (UserError, OperatorError) as error:
        raise AirflowFailException(str(error)) from None
    except ModuleNotFoundError as error:
        raise AirflowFailException(str(PackageMissing.from_import_error(error) or error)) from None


@task(task_id=LISTEN, **TASK, do_xcom_push=False)
@hide_traceback
def listen(runner: str) -> None:
    """Take the runner's unfinished batch or plan the next one; if nothing waits, skip the rest of the run."""
    from eventbridge.pipeline.ingest.listen import listen as run

    with stage() as runtime:
        batch_id = run(runtime, runner, confirmed_pools(runtime))
    share_batch_id(batch_id)


@task(**TASK, do_xcom_push=False)
@hide_traceback
def buffer(batch_id: str) -> None:
    """Land the batch's events in the archive, as Parquet files."""
    from eventbridge.airflow.spark import open_lander
    from eventbridge.pipeline.ingest.buffer import buffer as run

    if _has_batch(batch_id):
        with stage() as runtime:
            run(runtime, batch_id, open_lander)
            log_report(sentences.landing_report(runtime, batch_id))


@task(**TASK, multiple_outputs=False)
@hide_traceback
def route(batch_id: str) -> list[int]:
    """Match and transform events on Spark, cut chunks, and return the chunks that are handed out, one per push."""
    from eventbridge.airflow.spark import open_router
    from eventbridge.pipeline.route.stage import route as run

    if not _has_batch(batch_id):
        return []
    with stage() as runtime:
        router = open_router(runtime)
        with slow_spark(log.info):
            chunk_ids = run(runtime, batch_id, router, existing_pools())
        log_report(sentences.routing_report(runtime, batch_id, len(chunk_ids)))
        return chunk_ids


@task(trigger_rule="all_done", **TASK, do_xcom_push=False)
@hide_traceback
def write_dead_letters(batch_id: str) -> None:
    """Settle the batch, so that each delivery has one status, and write its dead letters, even if pushes failed."""
    from eventbridge.pipeline.settle.dead_letters import write_dead_letters as run

    if _has_batch(batch_id):
        with stage() as runtime:
            run(runtime, batch_id)
            log_report(sentences.dead_letters_report(runtime, batch_id))


@task(trigger_rule="all_done", **TASK, do_xcom_push=False)
@hide_traceback
def schedule_retries(batch_id: str) -> None:
    """Make the deliveries to be retried pending."""
    from eventbridge.pipeline.settle.pending import schedule_retries as run

    if _has_batch(batch_id):
        with stage() as runtime:
            run(runtime, batch_id)
            log_report(sentences.pending_report(runtime, batch_id))


@task(trigger_rule="none_failed", **TASK, do_xcom_push=False)
@hide_traceback
def commit(batch_id: str) -> None:
    """Reconcile the batch and commit the offsets."""
    from eventbridge.pipeline.commit.stage import commit as run

    if not _has_batch(batch_id):
        return
    with stage() as runtime:
        if not run(runtime, batch_id):
            log.warning("batch %s is not settled yet; nothing committed", batch_id)
            return
        found = sentences.commit_report(runtime, batch_id)
    log_report(found)
    if found.is_warning:
        note_run(get_current_context(), found.text)


def process_batch(first: Any, batch_id: str, pushes: Any) -> Any:
    """Add the tasks that route, push, settle and commit a batch after the task `first`, and return the last one.

    `pushes` is the partial mapped push.
    """
    chunk_ids = route(batch_id)
    dead, pending, committed = write_dead_letters(batch_id), schedule_retries(batch_id), commit(batch_id)
    first >> chunk_ids >> pushes.expand(chunk_id=chunk_ids) >> dead >> pending
    # commit is not downstream of push, because a failed push must not keep its batch from being committed.
    [chunk_ids, dead, pending] >> committed
    return committed


def _has_batch(batch_id: str) -> bool:
    """Return whether the run has a batch. If it has none, log that."""
    if not batch_id:
        log.info("nothing to do: this run has no batch")
    return bool(batch_id)


def log_report(report: TaskReport) -> None:
    """Log what a task did, as a warning if an operator should read it."""
    log.log(logging.WARNING if report.is_warning else logging.INFO, "%s", report.text)


def confirmed_pools(runtime: Runtime) -> dict[str, PoolSlots]:
    """Create the missing pools of the current rules, and return all pools.

    If Airflow does not respond, log an alarm and return no pools. The pushes of a pool that is not returned run in
    `default_pool`, which always exists. If the rule files have errors, log an alarm and create no pool: planning a new
    batch will raise the errors, and an unfinished batch does not need new pools.
    """
    from eventbridge.airflow.pools import apply_slots

    try:
        rules = runtime.rule_set()
    except RuleFileError as error:
        log.error("ALARM: cannot plan a new batch: %s", error)
        return existing_pools()
    return _pools(lambda airflow: apply_slots(runtime.ledger, airflow, rules))


def existing_pools() -> dict[str, PoolSlots]:
    """Return the existing pools. The rules are not read, because a batch continues while rule files have errors."""
    return _pools(lambda airflow: airflow.pools())


def _pools(ask: Callable[[AirflowPools], dict[str, PoolSlots]]) -> dict[str, PoolSlots]:
    from eventbridge.airflow.airflow_api import CONNECTION_ID, AirflowError
    from eventbridge.airflow.connections import airflow_connection
    from eventbridge.airflow.pools import AirflowPools

    try:
        with AirflowPools(airflow_connection(CONNECTION_ID)) as airflow:
            return ask(airflow)
    except AirflowError as error:
        log.error("ALARM: cannot read the pools (%s)", error)
        return {}


def share_batch_id(batch_id: str | None, beside: Mapping[str, bool] = MappingProxyType({})) -> None:
    """Pass the batch id to the other tasks of the run. If it is None, skip the tasks that process a batch.

    `beside` has the tasks that do not belong to the batch, and whether each has work. Those without work are skipped.
    """
    context = get_current_context()
    idle = {name for name, is_needed in beside.items() if not is_needed}
    if batch_id is None:
        log.info("this run has no batch; the tasks that process a batch are skipped")
        idle |= context["task"].get_flat_relative_ids(upstream=False) - beside.keys()
    else:
        log.info("processing batch %s", batch_id)
        context["ti"].xcom_push(key=BATCH_ID, value=batch_id)
    if idle:
        raise DownstreamTasksSkipped(tasks=sorted(idle))  # type: ignore[no-untyped-call]


def end_run(context: Any, but: str = "") -> None:
    """Skip all tasks after the current one, except `but`."""
    rest = sorted(context["task"].get_flat_relative_ids(upstream=False) - {but})
    raise DownstreamTasksSkipped(tasks=rest)  # type: ignore[no-untyped-call]


def batch_of(*first: str) -> str:
    """Return the template of the batch id that a run's first task passed on. It renders as "" if there is none.

    It is a template and not the task's output, because an output would make every reader a direct downstream task.
    `first` names all tasks that may be the first one, because a task's process does not know which of them the DAG has.
    """
    pulled = " or ".join(f"ti.xcom_pull(task_ids='{name}', key='{BATCH_ID}')" for name in first)
    return f"{{{{ {pulled} or '' }}}}"


def give_way(_: Context) -> None:
    """Lower the CPU priority of this task's process until the process ends. Airflow calls it as `pre_execute`."""
    lower_priority_once(NICENESS)


def give_way_as_old(_: Context) -> None:
    """Lower the CPU priority of this task's process even more than `give_way`, for work on old events."""
    lower_priority_once(OLD_NICENESS)


#: The time between two log lines that say that Spark is still running. A warm Spark routes a batch in seconds.
_SPARK_LOG_SECONDS = 30.0


@contextmanager
def slow_spark(log_line: Callable[[str], None], every_seconds: float = _SPARK_LOG_SECONDS) -> Iterator[None]:
    """Log every `every_seconds`, from another thread, that the block is still waiting for Spark."""
    begun, ended = time.monotonic(), threading.Event()

    def watch() -> None:
        while not ended.wait(every_seconds):
            log_line(
                f"Spark has been running for {time.monotonic() - begun:.0f} s. Workers that run this version for "
                "the first time compile the matcher, which takes up to three minutes. To avoid this, run `eventbridge "
                "compile` where Spark's workers run, as their user, before the first batch"
            )

    thread = threading.Thread(target=watch, name="slow-spark", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
