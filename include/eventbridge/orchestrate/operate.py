"""The task of the DAG `eventbridge_operate_rules`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context, task

from eventbridge.orchestrate.filled_in import filled_in
from eventbridge.orchestrate.forms.operate_rules import operate_params
from eventbridge.orchestrate.noted_form import noted_form
from eventbridge.orchestrate.plain_failure import plainly
from eventbridge.orchestrate.tasks import TASK, stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eventbridge.stages.operate.release import Released
    from eventbridge.stages.runtime.runtime import Runtime

log = logging.getLogger(__name__)


@task(**TASK, do_xcom_push=False)
@plainly
def operate() -> None:
    """Do what the form says, in the name of the user who triggered the run; the log says what it came to."""
    context = get_current_context()
    with stage() as runtime:
        form = filled_in(context, operate_params())
        with noted_form(runtime, context, form) as by:
            log.info("%s", operated(runtime, form, by))


def operated(runtime: Runtime, form: Mapping[str, Any], by: str) -> str:
    """Do what the form says and return what it came to; raises UserError."""
    from eventbridge.errors import UserError
    from eventbridge.stages.operate.enable import enable_target
    from eventbridge.stages.operate.find import find_rule, find_target
    from eventbridge.stages.operate.overrides import operate as run
    from eventbridge.stages.operate.release import release_rule

    action, rule, target, value = (str(form[name] or "").strip() for name in ("action", "rule", "target", "value"))
    if action not in ("enable target", "release rule"):
        if action == "disable rule" and not form["confirm"]:
            raise UserError(f"events that arrive while {rule} is disabled never reach it: tick Confirm")
        return str(run(runtime, action, rule, target, value, by=by))
    if value:
        raise UserError(f"{action} takes no value, and {value!r} was given")
    if action == "enable target":
        if not target:
            raise UserError("enable target: name a target of the rule")
        find_target(runtime.rule_set(), rule, target)
        return f"{rule}/{target}: enabled, by {by}; deliveries that are due now: {enable_target(runtime, rule, target)}"
    if target:
        raise UserError("release rule: it is about the whole rule: name no target")
    find_rule(runtime.rule_set(), rule)
    return f"{_summary(release_rule(runtime, rule))}, by {by}"


def _summary(released: Released) -> str:
    """Return what was released of a rule."""
    if released.nothing:
        return f"{released.rule} is not on hold, and nothing of it waits to be released"
    events = f"{released.events} events that waited" if released.deferred_matches else ""
    deliveries = released.deliveries + len(released.retried)
    due = " and ".join(part for part in (events, f"{deliveries} deliveries" if deliveries else "") if part)
    parts = [f"{released.rule}: released", f"due now: {due or 'nothing'}"]
    if released.waits_for:
        parts.append(f"its events go on waiting: {released.waits_for}")
    if released.unsendable:
        names = ", ".join(each.delivery_id for each in released.unsendable[:3])
        parts.append(f"{len(released.unsendable)} deliveries have nothing to send and stay on hold ({names})")
    if released.disabled:
        parts.append(f"targets that are disabled: {', '.join(released.disabled[:5])}")
    return "; ".join(parts)
