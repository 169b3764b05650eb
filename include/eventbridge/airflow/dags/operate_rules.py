"""Defines the DAG `eventbridge_operate_rules`, which sets overrides of rules and targets, and ends their holds."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, get_current_context, task

from eventbridge.airflow.form_fields import NO_CHOICES, Choices, choices, form_values, proposing, recorded_form
from eventbridge.airflow.names import OPERATE_DAG
from eventbridge.airflow.schedule import dag_options
from eventbridge.airflow.settings import airflow_settings, run_limit
from eventbridge.airflow.tasks import TASK, hide_traceback, stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eventbridge.control.release import Released
    from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)

GUIDE = """
Sets or clears an override of a rule or a target, returns a target to service, or releases a rule: trigger the DAG and
fill in the form. A pause or a rate takes effect within about a second, any other override with the next task. An
override lasts until it is cleared; `eventbridge status` shows each override, who set it, and when.

| action | effect |
|---|---|
| pause, resume rule | while the rule is paused, events are still matched, but its deliveries wait |
| pause, resume target | the same for one target |
| disable, enable rule | **events that arrive while a rule is disabled never reach it**; to disable, tick *Confirm* |
| set, clear priority | high, medium or low: the weight of the rule's pushes and, unless it has its own, their pool |
| enable target | returns a disabled or degraded target to service; deliveries on hold for that reason become due |
| release rule | releases a rule that is on hold because routing or an expectation failed, or a delivery blocks it |
| set, clear rate | the delivery rate of a target, such as 10/s |

`eventbridge rules` and `eventbridge targets` have commands for the same actions.
"""


def operate_rules() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=OPERATE_DAG,
        description="Sets overrides of rules and targets, and ends their holds",
        doc_md=GUIDE,
        schedule=None,
        max_active_runs=1,
        dagrun_timeout=run_limit(airflow_settings()),
        params=operate_params(choices()),
        tags=["eventbridge", "operate"],
        **dag_options(),
    ) as dag:
        operate()
    return dag


@task(**TASK, do_xcom_push=False)
@hide_traceback
def operate() -> None:
    """Carry out the form's action on behalf of the user who triggered the run, and log the result."""
    context = get_current_context()
    with stage() as runtime:
        form = form_values(context, operate_params())
        with recorded_form(runtime, context, form) as by:
            log.info("%s", carry_out(runtime, form, by))


def carry_out(runtime: Runtime, form: Mapping[str, Any], by: str) -> str:
    """Carry out the form's action and return the result. Raises UserError if the form is invalid."""
    from eventbridge.control.overrides import enable_target
    from eventbridge.control.overrides import operate as run
    from eventbridge.control.release import release_rule
    from eventbridge.errors import UserError
    from eventbridge.rules.find import find_rule, find_target

    action, rule, target, value = (str(form[name] or "").strip() for name in ("action", "rule", "target", "value"))
    if action not in ("enable target", "release rule"):
        if action == "disable rule" and not form["confirm"]:
            find_rule(runtime.rule_set(), rule)
            raise UserError(
                f"events that arrive while rule {rule} is disabled never reach it. Tick Confirm to disable it"
            )
        return str(run(runtime, action, rule, target, value, by=by))
    if value:
        raise UserError(f"{action} does not accept a value. Remove {value!r}")
    if action == "enable target":
        if not target:
            raise UserError("The action 'enable target' requires a target. Fill in Target")
        find_target(runtime.rule_set(), rule, target)
        due = enable_target(runtime, rule, target)
        return f"Target {rule}/{target} enabled. Deliveries due now: {due}. Requested by {by}."
    if target:
        raise UserError("The action 'release rule' applies to the whole rule. Leave Target empty")
    find_rule(runtime.rule_set(), rule)
    return f"{_summary(release_rule(runtime, rule))}. Requested by {by}."


def _summary(released: Released) -> str:
    """Return a summary of the released deliveries and deferred matches of a rule."""
    if released.nothing:
        return f"{released.rule} is not on hold, and has nothing to release"
    events = f"events of deferred matches ({released.events})" if released.deferred_matches else ""
    deliveries = released.released + len(released.retried)
    due = " and ".join(part for part in (events, f"deliveries ({deliveries})" if deliveries else "") if part)
    parts = [f"{released.rule}: released", f"due now: {due or 'nothing'}"]
    if released.waits_for:
        parts.append(f"its deferred matches stay on hold: {released.waits_for}")
    if released.unsendable:
        names = ", ".join(each.delivery_id for each in released.unsendable[:3])
        parts.append(f"deliveries that stay on hold because they have no payload: {len(released.unsendable)} ({names})")
    if released.disabled:
        parts.append(f"disabled targets: {', '.join(released.disabled[:5])}")
    return "; ".join(parts)


#: Repeats `Action` of `eventbridge.control.overrides`, which a DAG file must not import. A test compares them.
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

#: The other actions: they return a target to service, or release a rule that is on hold.
REPAIRS = ("enable target", "release rule")


def operate_params(propose: Choices = NO_CHOICES) -> dict[str, Param]:
    """Return the form of the DAG: the action, and the rule or target."""
    text = ["null", "string"]
    return {
        "action": Param(
            "pause rule",
            type="string",
            enum=[*ACTIONS, *REPAIRS],
            title="Action",
            description="The action to carry out.",
        ),
        "rule": Param(
            "",
            type="string",
            minLength=1,
            **proposing(propose.rules),
            title="Rule",
            description="The name of the rule.",
        ),
        "target": Param(
            None,
            type=text,
            **proposing(propose.targets),
            title="Target",
            description="The name of the target, for actions on a target.",
        ),
        "value": Param(
            None, type=text, title="Value", description="high, medium or low for a priority; 10/s or 300/m for a rate."
        ),
        "confirm": Param(
            False,
            type="boolean",
            title="Confirm",
            description="Required to disable a rule, because events that arrive while it is disabled never reach it.",
        ),
    }
