"""The tasks of the DAG `eventbridge_redrive_dead_letters`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context, task

from eventbridge.orchestrate.filled_in import filled_in
from eventbridge.orchestrate.forms.redrive_dead_letters import redrive_params
from eventbridge.orchestrate.names import BATCH_ID, GO_ON, PLAN_REDRIVE, REDRIVE_DAG, REDRIVE_ID
from eventbridge.orchestrate.next_run import next_run
from eventbridge.orchestrate.noted_form import noted_form
from eventbridge.orchestrate.patience import planned_in_time
from eventbridge.orchestrate.plain_failure import plainly
from eventbridge.orchestrate.tasks import TASK, confirmed_pools, end_run, stage

if TYPE_CHECKING:
    from eventbridge.stages.redrive.plan import RedrivePlan
    from eventbridge.stages.runtime.runtime import Runtime

log = logging.getLogger(__name__)


@task(task_id=PLAN_REDRIVE, **TASK, do_xcom_push=False)
@plainly
def plan_redrive() -> None:
    """Begin the redrive that the run's parameters ask for, or go on with it, and plan its next batch."""
    context = get_current_context()
    with stage() as runtime:
        form = filled_in(context, redrive_params(), goes_on="redrive_id")
        run = f"{context['dag'].dag_id} {context['run_id']}"
        # A run that another run triggered for the next batch is no action of a person.
        noting = nullcontext() if context["run_id"].startswith("redrive__") else noted_form(runtime, context, form)
        with noting:
            redrive_id = redrive_id_of(runtime, form, run)
        if redrive_id is None:
            end_run(context)
            return
        context["ti"].xcom_push(key=REDRIVE_ID, value=redrive_id)
        planned = _plan(runtime, redrive_id)
    if planned.batch_id is not None:
        log.info("redrive %s: batch %s is planned", redrive_id, planned.batch_id)
        context["ti"].xcom_push(key=BATCH_ID, value=planned.batch_id)
    elif planned.wait_until is None:
        log.info("redrive %s has ended", redrive_id)
        _refuse_damaged(planned.damaged.values())
        end_run(context)
    else:
        log.info("redrive %s waits until %s; the next run goes on with it", redrive_id, planned.wait_until)
        end_run(context, but=GO_ON)


def _plan(runtime: Runtime, redrive_id: str) -> RedrivePlan:
    from eventbridge.stages.redrive.plan import plan_redrive as plan

    pools = confirmed_pools(runtime)
    return planned_in_time(runtime, lambda: plan(runtime, redrive_id, pools))


@task(task_id=GO_ON, trigger_rule="none_failed", **TASK, do_xcom_push=False)
@plainly
def go_on() -> None:
    """Trigger this DAG once more, for the redrive's next batch, if it is still running."""
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
    """Raise ReconciliationError, once all other dead letters are taken, if unreadable files were passed over."""
    from eventbridge.errors import ReconciliationError

    told = "\n".join(map(str, errors))
    if told:
        raise ReconciliationError(f"dead letters were passed over; redrive again once their files can be read:\n{told}")


def redrive_id_of(runtime: Runtime, params: Mapping[str, Any], run: str) -> str | None:
    """Return the redrive that the form asks for, begun if it is a new one; None for a dry run, which is logged."""
    from eventbridge.errors import UserError
    from eventbridge.stages.dead_letters.named import refuse_unknown_names
    from eventbridge.stages.dead_letters.selection import WrittenSelection
    from eventbridge.stages.redrive.plan import begin_redrive, refuse_rate, survey

    if params["redrive_id"]:
        if params["dry_run"]:  # of what was begun nothing is dry
            raise UserError("a redrive goes on as it was begun. Switch dry_run off to deliver.")
        others = [name for name in redrive_params() if name != "redrive_id" and params[name]]
        if others:
            raise UserError(f"a redrive goes on as it was begun. Leave empty: {', '.join(others)}.")
        return runtime.ledger.redrive(params["redrive_id"]).redrive_id
    chosen = {name: params[name] or None for name in ("rule", "target", "reason", "error", "since", "until", "sql")}
    selection = WrittenSelection(**chosen, names=params["names"] or ()).read(runtime.ledger.now())
    if not selection.chooses and not params["everything"]:
        raise UserError("nothing chooses dead letters. Fill in what does, or set All.")
    refuse_rate(params["rate"])
    refuse_unknown_names(runtime, selection.rule, selection.target)
    how = {"retransform": params["retransform"], "again": params["again"]}
    if params["dry_run"]:
        found = survey(runtime, selection, **how)
        log.info("dry run, nothing is sent: %s dead letters would be taken", found.taken.total())
        for of, count in sorted(found.taken.items()):
            log.info("would be taken: %s dead letters of %s", count, of)
        for (of, why), count in sorted(found.left.items()):
            log.info("would be left: %s dead letters of %s: %s", count, of, why)
        _refuse_damaged(found.damaged.values())
        return None
    return begin_redrive(runtime, selection, run, rate=params["rate"], **how).redrive_id
