"""The task and the form of the DAG `operate_rules`."""

from __future__ import annotations

from airflow.sdk import Param, get_current_context, task

from eventbridge.orchestrate.tasks import STAGE, stage

#: As `Action` of `eventbridge.stages.operate.say`, which no DAG file imports when it is parsed; a test compares.
ACTIONS = (
    "pause rule",
    "resume rule",
    "disable rule",
    "enable rule",
    "set priority",
    "clear priority",
    "pause target",
    "resume target",
    "set rate",
    "clear rate",
)


def operate_params() -> dict[str, Param]:
    """Return the form of the DAG: what is to be done, to which rule or target."""
    text = ["null", "string"]
    return {
        "action": Param("pause rule", type="string", enum=list(ACTIONS), title="Action", description="What to do."),
        "rule": Param("", type="string", minLength=1, title="Rule", description="Name of the rule."),
        "target": Param(None, type=text, title="Target", description="Its target, for actions that are about one."),
        "value": Param(
            None, type=text, title="Value", description="high, medium or low for a priority; 10/s or 300/m for a rate."
        ),
        "confirm": Param(
            False, type="boolean", title="Confirm", description="Required to disable a rule: events then pass it by."
        ),
    }


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
