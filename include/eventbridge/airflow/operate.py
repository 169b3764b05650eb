"""The task of the DAG `eventbridge_operate_rules`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context, task

from eventbridge.airflow.form_values import form_values
from eventbridge.airflow.forms.operate_rules import operate_params
from eventbridge.airflow.plain_failure import without_traceback
from eventbridge.airflow.recorded_form import recorded_form
from eventbridge.airflow.tasks import TASK, stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eventbridge.control.release import Released
    from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)


@task(**TASK, do_xcom_push=False)
@without_traceback
def operate() -> None:
    """Carry out the form's action in the name of the user who triggered the run, and log the result."""
    context = get_current_context()
    with stage() as runtime:
        form = form_values(context, operate_params())
        with recorded_form(runtime, context, form) as by:
            log.info("%s", operated(runtime, form, by))


def operated(runtime: Runtime, form: Mapping[str, Any], by: str) -> str:
    """Carry out the form's action and return the result; raises UserError."""
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
        raise UserError(f"{action} takes no value. Remove {value!r}")
    if action == "enable target":
        if not target:
            raise UserError("enable target needs a target. Fill in Target")
        find_target(runtime.rule_set(), rule, target)
        due = enable_target(runtime, rule, target)
        return f"Target {rule}/{target} enabled. Deliveries due now: {due}. Requested by {by}."
    if target:
        raise UserError("release rule applies to the whole rule. Leave Target empty")
    find_rule(runtime.rule_set(), rule)
    return f"{_summary(release_rule(runtime, rule))}. Requested by {by}."


def _summary(released: Released) -> str:
    """Return what was released of a rule, as text."""
    if released.nothing:
        return f"{released.rule} is not on hold, and has nothing to release"
    events = f"{released.events} deferred events" if released.deferred_matches else ""
    deliveries = released.deliveries + len(released.retried)
    due = " and ".join(part for part in (events, f"{deliveries} deliveries" if deliveries else "") if part)
    parts = [f"{released.rule}: released", f"due now: {due or 'nothing'}"]
    if released.waits_for:
        parts.append(f"its events still wait: {released.waits_for}")
    if released.unsendable:
        names = ", ".join(each.delivery_id for each in released.unsendable[:3])
        parts.append(f"{len(released.unsendable)} deliveries have nothing to send and stay on hold ({names})")
    if released.disabled:
        parts.append(f"disabled targets: {', '.join(released.disabled[:5])}")
    return "; ".join(parts)
