"""Defines the DAG `eventbridge_replay_events`, which redelivers archived events, one batch per run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, get_current_context, task
from airflow.sdk.exceptions import DagRunTriggerException

from eventbridge.airflow.form_fields import (
    ALL,
    NO_CHOICES,
    Choices,
    choices,
    choosing,
    form_values,
    proposing,
    recorded_form,
    refuse_empty,
)
from eventbridge.airflow.names import ARCHIVE_DAG, BATCH_ID, PLAN_REPLAY, REPLAY_DAG, REPLAY_ID, TRIGGER_NEXT_RUN
from eventbridge.airflow.next_run import next_run, plan_with_retries
from eventbridge.airflow.push import pushes
from eventbridge.airflow.schedule import dag_options
from eventbridge.airflow.settings import airflow_settings, run_limit
from eventbridge.airflow.tasks import (
    TASK,
    batch_of,
    confirmed_pools,
    end_run,
    give_way_as_old,
    hide_traceback,
    process_batch,
    stage,
)
from eventbridge.model.chunk import REPLAY_LANE_POOL, REPLAY_LANE_WEIGHT
from eventbridge.model.form_labels import AS_OF_LABELS, IDS_LABELS, REPLAY_LABELS

if TYPE_CHECKING:
    from eventbridge.model.redelivery import Replay
    from eventbridge.replay.plan import ReplayPlan
    from eventbridge.replay.request import ReplayRequest
    from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)

GUIDE = """
Delivers archived events again: trigger the DAG and fill in the form. *Dry run*, which is on until you switch it off,
logs how many events would be taken, their targets, and samples. To deliver to all rules of the bus, choose `*` under
*Rules*. Events go through the current rules or those that routed them, with new delivery ids or the original ones.

A run processes one batch of kind *replay*, and triggers the next run until all archived events of the time range are
taken. The pushes run in the pool `eventbridge.replay`. `eventbridge replays pause` and `cancel` stop a replay, and
`eventbridge replays show` shows its results. Marking a run failed does not stop the replay: a few minutes later
`eventbridge_retry_deliveries` starts another run for it.
"""


def replay_events() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=REPLAY_DAG,
        description="Delivers archived events again",
        doc_md=GUIDE,
        schedule=None,
        max_active_runs=4,
        max_active_tasks=64,
        dagrun_timeout=run_limit(airflow_settings()),
        params=replay_params(choices()),
        tags=["eventbridge", "replay"],
        **dag_options(pre_execute=give_way_as_old),
    ) as dag:
        batch_id = batch_of(PLAN_REPLAY)
        process_batch(plan_replay(), batch_id, replay_pushes(batch_id)) >> trigger_next_run()
    return dag


#: The field Rules is required, so that nobody delivers to all rules by leaving it empty.
RULES_REQUIRED = {"rules": f"their names, or {ALL} for all rules of the bus"}


@task(task_id=PLAN_REPLAY, **TASK, do_xcom_push=False)
@hide_traceback
def plan_replay() -> None:
    """Start the replay that the run's parameters describe, or continue the one that they name; plan its next batch."""
    context = get_current_context()
    with stage() as runtime:
        form = form_values(context, replay_params(), resumes="replay_id")
        run = f"{context['dag'].dag_id} {context['run_id']}"
        # A run that another run triggered for the next batch is not a user's action.
        noting = nullcontext() if context["run_id"].startswith("replay__") else recorded_form(runtime, context, form)
        with noting:
            replay_id = replay_id_of(runtime, form, run)
        if replay_id is None:
            end_run(context)
            return
        context["ti"].xcom_push(key=REPLAY_ID, value=replay_id)
        cancel_if_archive_run_failed(runtime, replay_id)
        planned = _plan(runtime, replay_id)
    if planned.batch_id is not None:
        log.info("replay %s: batch %s planned", replay_id, planned.batch_id)
        context["ti"].xcom_push(key=BATCH_ID, value=planned.batch_id)
    elif planned.wait_until is None:
        log.info("replay %s has ended, or is paused or cancelled", replay_id)
        end_run(context)
    else:
        log.info("replay %s is waiting until %s; the next run continues it", replay_id, planned.wait_until)
        end_run(context, but=TRIGGER_NEXT_RUN)


def replay_pushes(batch_id: str) -> Any:
    """Return the mapped push task of a replay batch, yet to be expanded; its pushes share a pool and have the lowest
    weight."""
    return pushes(batch_id, pool=REPLAY_LANE_POOL, priority_weight=REPLAY_LANE_WEIGHT)


@task(task_id=TRIGGER_NEXT_RUN, trigger_rule="none_failed", **TASK, do_xcom_push=False)
@hide_traceback
def trigger_next_run() -> None:
    """Trigger this DAG again for the replay's next batch, if the replay is still running."""
    context = get_current_context()
    replay_id, batch_id = (context["ti"].xcom_pull(task_ids=PLAN_REPLAY, key=key) for key in (REPLAY_ID, BATCH_ID))
    with stage() as runtime:
        state = runtime.ledger.replays.get(replay_id).state
    if state != "running":
        log.info("replay %s is %s, so no further run is triggered", replay_id, state)
        return
    after = batch_id or f"{context['dag_run'].start_date:%Y%m%dT%H%M%S.%f}"
    raise trigger_for_replay(replay_id, f"after_{after}")


def trigger_for_replay(replay_id: str, reason: str) -> DagRunTriggerException:
    """Return the exception that triggers a run of `eventbridge_replay_events` for a replay.

    `reason` is part of the run id, so each reason triggers at most one run of the replay.
    """
    return next_run(REPLAY_DAG, f"replay__{replay_id}__{reason}", {"replay_id": replay_id})


def replay_id_of(runtime: Runtime, params: Mapping[str, Any], run: str) -> str | None:
    """Return the id of the replay that the form names, or of a new one. A dry run only logs, and returns None.

    If a user's form names a paused replay, the replay is resumed. A run that another run triggered does not resume it.
    """
    from eventbridge.errors import UserError
    from eventbridge.replay.plan import begin_replay

    if params["replay_id"]:
        if params["dry_run"]:
            raise UserError("a replay that has begun cannot be continued as a dry run. Switch Dry run off.")
        found = runtime.ledger.replays.get(params["replay_id"])
        if params["bus"] not in ("", found.bus):  # Airflow's form requires a bus
            raise UserError(
                f"the bus of a replay cannot be changed, and this replay was started for bus {found.bus!r}. "
                "Choose that bus."
            )
        defaults = {name: param.value for name, param in replay_params().items()} | {"dry_run": False}
        others = [name for name in defaults if (params[name] or None) != (defaults[name] or None)]
        if others := [name for name in others if name not in ("replay_id", "bus")]:
            raise UserError(
                f"a replay keeps the options with which it was started. Reset these fields: {', '.join(others)}."
            )
        if not run.partition(" ")[2].startswith("replay__"):
            resume_for(runtime, found, run)
        return found.replay_id
    begun = runtime.ledger.replays.find_for_run(run)
    if begun is not None:  # this is a retry of the task
        return begun.replay_id
    refuse_empty(params, {"bus": "the bus to replay", "from": "the earliest landing time"} | RULES_REQUIRED)
    request = request_of(runtime, params)
    if params["dry_run"]:
        log_survey(runtime, request)
        return None
    return begin_replay(runtime, request, run).replay_id


def log_survey(runtime: Runtime, request: ReplayRequest) -> None:
    """Log the events and deliveries that a replay would take, with samples."""
    from eventbridge.replay.survey import survey

    would = survey(runtime, request)
    log.info("dry run, nothing is sent: of %s archived events read, the replay would take %s", would.read, would.taken)
    for name, count in sorted(would.deliveries.items()):
        events = ", ".join(would.samples[name])
        log.info("the replay would make %s deliveries to %s, for example of events %s", count, name, events)


def request_of(runtime: Runtime, params: Mapping[str, Any]) -> ReplayRequest:
    """Return the replay request of a form. Raises UserError if a value is invalid, or if no rule is chosen."""
    from eventbridge.errors import UserError
    from eventbridge.replay.request import WrittenReplayRequest

    rules = params["rules"] or []
    refuse_empty(params, RULES_REQUIRED)
    if ALL in rules and len(rules) > 1:
        raise UserError(f"rules: {ALL} means all rules of the bus. Choose it alone, or remove it.")
    written = WrittenReplayRequest(
        params["bus"] or "",
        since=params["from"],
        until=params["to"],
        rules=() if rules == [ALL] else rules,
        targets=params["targets"] or (),
        pattern=params["pattern"],
        sql=params["sql"],
        as_of=params["as_of"],
        new_ids=params["ids"] == "new",
        skip_delivered=params["skip_delivered"],
        rate=params["rate"],
    )
    return written.read(runtime.ledger.now(), runtime.rule_set())


def _plan(runtime: Runtime, replay_id: str) -> ReplayPlan:
    from eventbridge.replay.plan import plan_replay as plan

    pools = confirmed_pools(runtime)
    return plan_with_retries(runtime, lambda: plan(runtime, replay_id, pools))


#: A function that takes the id of a run of `eventbridge_replay_archive` and returns the run's state, or None if the
#: state is unknown.
StateOfRun = Callable[[str], str | None]


def state_of_archive_run(run_id: str) -> str | None:
    """Return the state of a run of `eventbridge_replay_archive`, or None if it is unknown.

    This function can be called only in a running task.
    """
    from airflow.sdk.exceptions import AirflowRuntimeError
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    try:
        # This is a member of an Enum that is also a str: compare it, but do not format it.
        return RuntimeTaskInstance.get_dagrun_state(ARCHIVE_DAG, run_id)
    except AirflowRuntimeError as error:
        log.warning("cannot read the state of run %s of %s, which started this replay: %s", run_id, ARCHIVE_DAG, error)
        return None


def cancel_if_archive_run_failed(
    runtime: Runtime, replay_id: str, state_of_run: StateOfRun = state_of_archive_run
) -> bool:
    """Cancel a running replay if the run of `eventbridge_replay_archive` that started it has failed.

    Returns whether the replay was cancelled. Normally the trigger of that run cancels the replay. This function is for
    a run that failed before a triggerer picked up its trigger. Picking it up takes a second or two, or longer if no
    triggerer is running.
    """
    replay = runtime.ledger.replays.get(replay_id)
    if replay.state != "running" or not _has_archive_run_failed(replay, state_of_run):
        return False
    log.warning("cancelling replay %s, because %s has failed", replay_id, replay.run)
    return runtime.ledger.replays.end(replay_id, "cancelled")


def resume_for(runtime: Runtime, replay: Replay, run: str, state_of_run: StateOfRun = state_of_archive_run) -> None:
    """Resume a replay for a user's run of `eventbridge_replay_events`, if the replay is paused.

    If a run of `eventbridge_replay_archive` started the replay and has failed, for instance because it waited too long,
    the replay now belongs to the user's run.
    """
    if replay.state != "paused":
        return
    if _has_archive_run_failed(replay, state_of_run):
        runtime.ledger.replays.hand_over(replay.replay_id, run)
    else:
        runtime.ledger.replays.set_state(replay.replay_id, "paused", "running")


def _has_archive_run_failed(replay: Replay, state_of_run: StateOfRun) -> bool:
    from eventbridge.replay.plan import requesting_run

    dag_id, _, run_id = requesting_run(replay.run).partition(" ")
    return dag_id == ARCHIVE_DAG and state_of_run(run_id) == "failed"


def replay_params(propose: Choices = NO_CHOICES) -> dict[str, Param]:
    """Return the form of the DAG: the events, rules and targets, and how to deliver.

    The first task checks the required fields, because a run that continues a replay may omit them; only Airflow's form
    insists on a bus.
    """
    text = ["null", "string"]
    lists: dict[str, Any] = {"items": {"type": "string"}}
    return {
        "bus": Param(
            "",
            type="string",
            **proposing(propose.buses),
            title=REPLAY_LABELS["bus"],
            description="The bus whose archive is replayed. Required.",
        ),
        "from": Param(
            None,
            type=text,
            format="date-time",
            title=REPLAY_LABELS["from"],
            description="Events landed at or after this time. Required, except to continue a replay.",
        ),
        "to": Param(
            None,
            type=text,
            format="date-time",
            title=REPLAY_LABELS["to"],
            description="Events landed before this time; empty: now.",
        ),
        "rules": Param(
            [],
            type="array",
            **lists,
            **choosing(propose.rules, {ALL: "All rules of the bus"}),
            title=REPLAY_LABELS["rules"],
            description=f"Only these rules, or {ALL} for all rules of the bus. Required.",
        ),
        "targets": Param(
            [],
            type=["null", "array"],
            **lists,
            **choosing(propose.targets),
            title=REPLAY_LABELS["targets"],
            description="Only targets with these names. Empty: all targets of the rules.",
        ),
        "pattern": Param(
            None,
            type=text,
            format="multiline",
            title=REPLAY_LABELS["pattern"],
            description="The pattern of a rule; empty: all events of the period.",
        ),
        "sql": Param(
            None,
            type=text,
            title=REPLAY_LABELS["sql"],
            description="A condition of DuckDB, e.g. outcome = 'dead_lettered' AND code = 503.",
        ),
        "as_of": Param(
            "current",
            type="string",
            enum=list(AS_OF_LABELS),
            values_display=dict(AS_OF_LABELS),
            title=REPLAY_LABELS["as_of"],
            description="The version of the rules that decides which targets get the events.",
        ),
        "ids": Param(
            "new",
            type="string",
            enum=list(IDS_LABELS),
            values_display=dict(IDS_LABELS),
            title=REPLAY_LABELS["ids"],
            description="Whether deliveries get new ids or keep the original ones. A receiver that drops duplicates "
            "ignores an original id that it has already received.",
        ),
        "skip_delivered": Param(
            False,
            type="boolean",
            title=REPLAY_LABELS["skip_delivered"],
            description="A delivery that its target has received is left out.",
        ),
        "rate": Param(
            None,
            type=["null", "number"],
            minimum=0.1,
            title=REPLAY_LABELS["rate"],
            description="Empty: no limit.",
        ),
        "dry_run": Param(
            True,
            type="boolean",
            title="Dry run",
            description="Only log what would be taken, with samples. Switch off to deliver.",
        ),
        "replay_id": Param(
            None,
            type=text,
            title="Replay id",
            description="The id of a replay to continue. Also choose its bus, switch Dry run off, and leave all other "
            "fields at their defaults.",
        ),
    }
