"""The tasks of the DAG `eventbridge_redrive_dead_letters`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context, task

from eventbridge.airflow.form_values import form_values
from eventbridge.airflow.forms.redrive_dead_letters import redrive_params
from eventbridge.airflow.names import BATCH_ID, PLAN_REDRIVE, REDRIVE_DAG, REDRIVE_ID, TRIGGER_NEXT_RUN
from eventbridge.airflow.next_run import next_run
from eventbridge.airflow.patience import planned_in_time
from eventbridge.airflow.plain_failure import without_traceback
from eventbridge.airflow.recorded_form import recorded_form
from eventbridge.airflow.tasks import TASK, confirmed_pools, end_run, stage

if TYPE_CHECKING:
    from eventbridge.dead_letters.redrive_plan import RedrivePlan
    from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)


@task(task_id=PLAN_REDRIVE, **TASK, do_xcom_push=False)
@without_traceback
def plan_redrive() -> None:
    """Start or continue the redrive that the run's parameters name, and plan its next batch."""
    context = get_current_context()
    with stage() as runtime:
        form = form_values(context, redrive_params(), resumes="redrive_id")
        run = f"{context['dag'].dag_id} {context['run_id']}"
        # A run that another run triggered for the next batch is not an action of a person.
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
        log.info("redrive %s waits until %s; the next run continues it", redrive_id, planned.wait_until)
        end_run(context, but=TRIGGER_NEXT_RUN)


def _plan(runtime: Runtime, redrive_id: str) -> RedrivePlan:
    from eventbridge.dead_letters.redrive_plan import plan_redrive as plan

    pools = confirmed_pools(runtime)
    return planned_in_time(runtime, lambda: plan(runtime, redrive_id, pools))


@task(task_id=TRIGGER_NEXT_RUN, trigger_rule="none_failed", **TASK, do_xcom_push=False)
@without_traceback
def trigger_next_run() -> None:
    """Trigger this DAG again for the redrive's next batch, if the redrive is still running."""
    context = get_current_context()
    redrive_id, batch_id = (context["ti"].xcom_pull(task_ids=PLAN_REDRIVE, key=key) for key in (REDRIVE_ID, BATCH_ID))
    with stage() as runtime:
        state = runtime.ledger.redrive(redrive_id).state
    if state != "running":
        log.info("redrive %s is %s, so no further run is triggered", redrive_id, state)
        return
    after = batch_id or f"{context['dag_run'].start_date:%Y%m%dT%H%M%S.%f}"
    raise next_run(REDRIVE_DAG, f"redrive__{redrive_id}__after_{after}", {"redrive_id": redrive_id})


def _refuse_damaged(errors: Iterable[Exception]) -> None:
    """Raise ReconciliationError, after all other dead letters are taken, if unreadable files were skipped."""
    from eventbridge.errors import ReconciliationError

    messages = "\n".join(map(str, errors))
    if messages:
        raise ReconciliationError(
            f"some dead letters were skipped. Redrive again once their files can be read:\n{messages}"
        )


def redrive_id_of(runtime: Runtime, params: Mapping[str, Any], run: str) -> str | None:
    """Return the redrive that the form names, or start a new one; None for a dry run, whose result is logged."""
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
        return runtime.ledger.redrive(params["redrive_id"]).redrive_id
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
        log.info("dry run, nothing is sent: would take %s dead letters", found.taken.total())
        for of, count in sorted(found.taken.items()):
            log.info("would take: %s dead letters of %s", count, of)
        for (of, why), count in sorted(found.left.items()):
            log.info("would skip: %s dead letters of %s: %s", count, of, why)
        _refuse_damaged(found.damaged.values())
        return None
    return begin_redrive(runtime, selection, run, rate=params["rate"], **how).redrive_id
