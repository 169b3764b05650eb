"""The tasks of the DAG `eventbridge_replay_events`; `eventbridge_replay_archive` shares some of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import DagRunTriggerException

from eventbridge.airflow.form_values import form_values, refuse_empty
from eventbridge.airflow.forms.choices import ALL
from eventbridge.airflow.forms.replay_events import replay_params
from eventbridge.airflow.names import BATCH_ID, PLAN_REPLAY, REPLAY_DAG, REPLAY_ID, TRIGGER_NEXT_RUN
from eventbridge.airflow.next_run import next_run
from eventbridge.airflow.patience import planned_in_time
from eventbridge.airflow.plain_failure import without_traceback
from eventbridge.airflow.push import pushes
from eventbridge.airflow.recorded_form import recorded_form
from eventbridge.airflow.replay_asker import cancel_unwanted, resume_for
from eventbridge.airflow.tasks import TASK, confirmed_pools, end_run, stage
from eventbridge.model.chunk import REPLAY_LANE_POOL, REPLAY_LANE_WEIGHT

if TYPE_CHECKING:
    from eventbridge.replay.plan import ReplayPlan
    from eventbridge.replay.request import ReplayRequest
    from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)

#: The field Rules is required: delivering to all rules needs an explicit value.
RULES_REQUIRED = {"rules": f"their names, or {ALL} for all rules of the bus"}


@task(task_id=PLAN_REPLAY, **TASK, do_xcom_push=False)
@without_traceback
def plan_replay() -> None:
    """Start or continue the replay that the run's parameters name, and plan its next batch."""
    context = get_current_context()
    with stage() as runtime:
        form = form_values(context, replay_params(), resumes="replay_id")
        run = f"{context['dag'].dag_id} {context['run_id']}"
        # A run that another run triggered for the next batch is not an action of a person.
        noting = nullcontext() if context["run_id"].startswith("replay__") else recorded_form(runtime, context, form)
        with noting:
            replay_id = replay_id_of(runtime, form, run)
        if replay_id is None:
            end_run(context)
            return
        context["ti"].xcom_push(key=REPLAY_ID, value=replay_id)
        cancel_unwanted(runtime, replay_id)
        planned = _plan(runtime, replay_id)
    if planned.batch_id is not None:
        log.info("replay %s: batch %s planned", replay_id, planned.batch_id)
        context["ti"].xcom_push(key=BATCH_ID, value=planned.batch_id)
    elif planned.wait_until is None:
        log.info("replay %s has ended, or is paused or cancelled", replay_id)
        end_run(context)
    else:
        log.info("replay %s waits until %s; the next run continues it", replay_id, planned.wait_until)
        end_run(context, but=TRIGGER_NEXT_RUN)


def replay_pushes(batch_id: str) -> Any:
    """Return the partial mapped push of a replay batch: all in one pool, below all other pushes."""
    return pushes(batch_id, pool=REPLAY_LANE_POOL, priority_weight=REPLAY_LANE_WEIGHT)


@task(task_id=TRIGGER_NEXT_RUN, trigger_rule="none_failed", **TASK, do_xcom_push=False)
@without_traceback
def trigger_next_run() -> None:
    """Trigger this DAG again for the replay's next batch, if the replay is still running."""
    context = get_current_context()
    replay_id, batch_id = (context["ti"].xcom_pull(task_ids=PLAN_REPLAY, key=key) for key in (REPLAY_ID, BATCH_ID))
    with stage() as runtime:
        state = runtime.ledger.replay(replay_id).state
    if state != "running":
        log.info("replay %s is %s, so no further run is triggered", replay_id, state)
        return
    after = batch_id or f"{context['dag_run'].start_date:%Y%m%dT%H%M%S.%f}"
    raise run_of_replay(replay_id, f"after_{after}")


def run_of_replay(replay_id: str, why: str) -> DagRunTriggerException:
    """Return the exception that triggers a run of `eventbridge_replay_events` for a replay, once for each `why`."""
    return next_run(REPLAY_DAG, f"replay__{replay_id}__{why}", {"replay_id": replay_id})


def replay_id_of(runtime: Runtime, params: Mapping[str, Any], run: str) -> str | None:
    """Return the replay that the form names, or start a new one; None for a dry run, whose result is logged.

    If a person's form names a paused replay, it resumes. A run that another run triggered does not resume it.
    """
    from eventbridge.errors import UserError
    from eventbridge.replay.plan import begin_replay

    if params["replay_id"]:
        if params["dry_run"]:
            raise UserError("a replay continues as it was started. Switch Dry run off to deliver.")
        found = runtime.ledger.replay(params["replay_id"])
        if params["bus"] not in ("", found.bus):  # Airflow's form requires it
            raise UserError(
                f"a replay continues as it was started, and this one is of bus {found.bus!r}. Choose that bus."
            )
        defaults = {name: param.value for name, param in replay_params().items()} | {"dry_run": False}
        others = [name for name in defaults if (params[name] or None) != (defaults[name] or None)]
        if others := [name for name in others if name not in ("replay_id", "bus")]:
            raise UserError(f"a replay continues as it was started. Leave these fields unchanged: {', '.join(others)}.")
        if not run.partition(" ")[2].startswith("replay__"):
            resume_for(runtime, found, run)
        return found.replay_id
    begun = runtime.ledger.replay_of_run(run)
    if begun is not None:  # a retry of this task
        return begun.replay_id
    refuse_empty(
        params, {"bus": "whose archive is replayed", "from": "when the first event was landed"} | RULES_REQUIRED
    )
    request = request_of(runtime, params)
    if params["dry_run"]:
        log_survey(runtime, request)
        return None
    return begin_replay(runtime, request, run).replay_id


def log_survey(runtime: Runtime, request: ReplayRequest) -> None:
    """Log the events and deliveries that a replay would take, with samples."""
    from eventbridge.replay.survey import survey

    would = survey(runtime, request)
    log.info("dry run, nothing is sent: %s archived events read, would take %s", would.events, would.taken)
    for of, count in sorted(would.deliveries.items()):
        log.info("would deliver: %s to %s, such as events %s", count, of, ", ".join(would.samples[of]))


def request_of(runtime: Runtime, params: Mapping[str, Any]) -> ReplayRequest:
    """Return the replay request of a form; raises UserError, also if no rule is chosen: all rules need `*`."""
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
    return planned_in_time(runtime, lambda: plan(runtime, replay_id, pools))
