"""Defines the DAG `eventbridge_redrive_dead_letters`, which redelivers dead letters, one batch per run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, get_current_context, task

from eventbridge.airflow.form_fields import NO_CHOICES, Choices, choices, form_values, proposing, recorded_form
from eventbridge.airflow.names import BATCH_ID, PLAN_REDRIVE, REDRIVE_DAG, REDRIVE_ID, TRIGGER_NEXT_RUN
from eventbridge.airflow.next_run import next_run, plan_with_retries
from eventbridge.airflow.push import slow_lane_pushes
from eventbridge.airflow.schedule import dag_options
from eventbridge.airflow.settings import airflow_settings, run_limit
from eventbridge.airflow.tasks import (
    TASK,
    batch_of,
    confirmed_pools,
    end_run,
    give_way,
    hide_traceback,
    process_batch,
    stage,
)
from eventbridge.model.form_labels import REDRIVE_LABELS

if TYPE_CHECKING:
    from eventbridge.dead_letters.redrive_plan import RedrivePlan
    from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)

GUIDE = """
Delivers dead letters again: trigger the DAG and fill in the form. *Dry run*, which is on until you switch it off, logs
which dead letters would be taken, which would be skipped, and why. The same requests are sent again, with the same
delivery ids. With *Route with the current rules*, the events go through the current rules instead. A run processes one
batch of kind *redrive*, and triggers the next run while dead letters are left. `eventbridge redrives cancel REDRIVE`
stops a redrive, and `eventbridge redrives list` shows the results.
"""


def redrive_dead_letters() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=REDRIVE_DAG,
        description="Delivers dead letters again",
        doc_md=GUIDE,
        schedule=None,
        max_active_runs=1,
        max_active_tasks=64,
        dagrun_timeout=run_limit(airflow_settings()),
        params=redrive_params(choices()),
        tags=["eventbridge", "redrive"],
        **dag_options(pre_execute=give_way),
    ) as dag:
        batch_id = batch_of(PLAN_REDRIVE)
        process_batch(plan_redrive(), batch_id, slow_lane_pushes(batch_id)) >> trigger_next_run()
    return dag


@task(task_id=PLAN_REDRIVE, **TASK, do_xcom_push=False)
@hide_traceback
def plan_redrive() -> None:
    """Start or continue the redrive that the run's parameters name, and plan its next batch."""
    context = get_current_context()
    with stage() as runtime:
        form = form_values(context, redrive_params(), resumes="redrive_id")
        run = f"{context['dag'].dag_id} {context['run_id']}"
        # A run that another run triggered for the next batch is not a user's action.
        noting = nullcontext() if context["run_id"].startswith("redrive__") else recorded_form(runtime, context, form)
        with noting:
            redrive_id = redrive_id_of(runtime, form, run)
        if redrive_id is None:
            end_run(context)
            return
        context["ti"].xcom_push(key=REDRIVE_ID, value=redrive_id)
        planned = _plan(runtime, redrive_id)
    if planned.batch_id is not None:
        log.info("redrive %s: batch %s planned", redrive_id, planned.batch_id)
        context["ti"].xcom_push(key=BATCH_ID, value=planned.batch_id)
    elif planned.wait_until is None:
        log.info("redrive %s has ended", redrive_id)
        _refuse_damaged(planned.damaged.values())
        end_run(context)
    else:
        log.info("redrive %s is waiting until %s; the next run continues it", redrive_id, planned.wait_until)
        end_run(context, but=TRIGGER_NEXT_RUN)


def _plan(runtime: Runtime, redrive_id: str) -> RedrivePlan:
    from eventbridge.dead_letters.redrive_plan import plan_redrive as plan

    pools = confirmed_pools(runtime)
    return plan_with_retries(runtime, lambda: plan(runtime, redrive_id, pools))


@task(task_id=TRIGGER_NEXT_RUN, trigger_rule="none_failed", **TASK, do_xcom_push=False)
@hide_traceback
def trigger_next_run() -> None:
    """Trigger this DAG again for the redrive's next batch, if the redrive is still running."""
    context = get_current_context()
    redrive_id, batch_id = (context["ti"].xcom_pull(task_ids=PLAN_REDRIVE, key=key) for key in (REDRIVE_ID, BATCH_ID))
    with stage() as runtime:
        state = runtime.ledger.redrives.get(redrive_id).state
    if state != "running":
        log.info("redrive %s is %s, so no further run is triggered", redrive_id, state)
        return
    after = batch_id or f"{context['dag_run'].start_date:%Y%m%dT%H%M%S.%f}"
    raise next_run(REDRIVE_DAG, f"redrive__{redrive_id}__after_{after}", {"redrive_id": redrive_id})


def _refuse_damaged(errors: Iterable[Exception]) -> None:
    """Raise ReconciliationError if files were skipped because they could not be read."""
    from eventbridge.errors import ReconciliationError

    messages = "\n".join(map(str, errors))
    if messages:
        raise ReconciliationError(
            f"some dead letters were skipped. Redrive again once their files can be read:\n{messages}"
        )


def redrive_id_of(runtime: Runtime, params: Mapping[str, Any], run: str) -> str | None:
    """Return the id of the redrive that the form names, or of a new one. A dry run only logs, and returns None."""
    from eventbridge.dead_letters.reader import refuse_unknown_names
    from eventbridge.dead_letters.redrive_plan import begin_redrive, refuse_rate, survey
    from eventbridge.dead_letters.selection import WrittenSelection
    from eventbridge.errors import UserError

    if params["redrive_id"]:
        if params["dry_run"]:
            raise UserError("a redrive continues as it was started. Switch Dry run off to deliver.")
        others = [name for name in redrive_params() if name != "redrive_id" and params[name]]
        if others:
            raise UserError(f"a redrive continues as it was started. Leave these fields empty: {', '.join(others)}.")
        return runtime.ledger.redrives.get(params["redrive_id"]).redrive_id
    chosen = {name: params[name] or None for name in ("rule", "target", "reason", "error", "sql")}
    times = {"since": params["from"] or None, "until": params["to"] or None}
    selection = WrittenSelection(**chosen, **times, names=params["names"] or ()).read(runtime.ledger.now())
    if not selection.chooses and not params["everything"]:
        raise UserError("no filter given. Fill in a filter, or tick All.")
    refuse_rate(params["rate"])
    refuse_unknown_names(runtime, selection.rule, selection.target)
    how = {"retransform": params["retransform"], "again": params["again"]}
    if params["dry_run"]:
        found = survey(runtime, selection, **how)
        log.info("dry run, nothing is sent; dead letters that would be taken: %s", found.taken.total())
        for of, count in sorted(found.taken.items()):
            log.info("would take dead letters of %s: %s", of, count)
        for (of, why), count in sorted(found.left.items()):
            log.info("would skip dead letters of %s: %s, because: %s", of, count, why)
        _refuse_damaged(found.damaged.values())
        return None
    return begin_redrive(runtime, selection, run, rate=params["rate"], **how).redrive_id


#: Repeats `REASONS` of `eventbridge.dead_letters.selection`, which a DAG file must not import. A test compares them.
REASONS = (
    "maximum_retry_attempts",
    "maximum_event_age",
    "non_retryable",
    "transform_failed",
    "route_failed",
    "target_gone",
    "rule_removed",
    "deadline_missed",
)


def redrive_params(propose: Choices = NO_CHOICES) -> dict[str, Param]:
    """Return the form of the DAG: the filters for dead letters, and how to redeliver them."""
    text = ["null", "string"]
    return {
        "rule": Param(
            None,
            type=text,
            **proposing(propose.rules),
            title=REDRIVE_LABELS["rule"],
            description="Only dead letters of this rule.",
        ),
        "target": Param(
            None,
            type=text,
            **proposing(propose.targets),
            title=REDRIVE_LABELS["target"],
            description="Only dead letters for targets with this name.",
        ),
        "reason": Param(
            None,
            type=text,
            enum=[None, *REASONS],
            values_display={"null": "any reason"},
            title=REDRIVE_LABELS["reason"],
            description="Only dead letters with this reason.",
        ),
        "error": Param(
            None,
            type=text,
            title=REDRIVE_LABELS["error"],
            description="Only dead letters whose errors contain this text.",
        ),
        "from": Param(
            None,
            type=text,
            format="date-time",
            title=REDRIVE_LABELS["from"],
            description="Only dead letters last tried at or after this time.",
        ),
        "to": Param(
            None,
            type=text,
            format="date-time",
            title=REDRIVE_LABELS["to"],
            description="Only dead letters last tried before this time.",
        ),
        "names": Param(
            [],
            type=["null", "array"],
            items={"type": "string"},
            title="Names",
            description="Delivery ids, one per line.",
        ),
        "sql": Param(
            None, type=text, title="SQL", description="Only dead letters whose records meet this DuckDB condition."
        ),
        "everything": Param(False, type="boolean", title="All", description="Required if no filter above is set."),
        "rate": Param(
            None,
            type=["null", "number"],
            minimum=0.1,
            title=REDRIVE_LABELS["rate"],
            description="Empty: no limit.",
        ),
        "retransform": Param(
            False,
            type="boolean",
            title=REDRIVE_LABELS["retransform"],
            description="Otherwise, the same requests are sent again.",
        ),
        "again": Param(
            False,
            type="boolean",
            title=REDRIVE_LABELS["again"],
            description="Otherwise, dead letters that were redriven before are skipped.",
        ),
        "dry_run": Param(
            True,
            type="boolean",
            title="Dry run",
            description="Only log what would be taken. Switch off to deliver.",
        ),
        "redrive_id": Param(
            None,
            type=text,
            title="Redrive id",
            description="The id of a redrive to continue. Switch Dry run off, and leave all other fields unchanged.",
        ),
    }
