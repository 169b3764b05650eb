"""The task of the DAG `operate_rules`."""

from __future__ import annotations

from airflow.sdk import get_current_context, task

from eventbridge.orchestrate.tasks import STAGE, stage


@task(**STAGE, do_xcom_push=False)
def operate() -> None:
    """Do what the form says, in the name of the user who triggered the run."""
    from eventbridge.errors import UserError
    from eventbridge.stages.operate.say import operate as run

    context = get_current_context()
    form = context["params"]
    with stage() as work:
        if form["action"] == "disable rule" and not form["confirm"]:
            raise UserError(f"events that arrive while {form['rule']} is disabled never reach it: tick Confirm")
        by = getattr(context["dag_run"], "triggering_user_name", None) or f"Airflow, {context['run_id']}"
        run(work, form["action"], form["rule"], form["target"] or "", form["value"] or "", by=by)
