"""Sets and clears overrides of rules and targets (pause, disable, priority, rate), and enables targets.

An override is written to the ledger immediately, and applies from the start of the next task. A running push applies a
pause or a new rate within about a second. The command line, the API, the page and the DAG `eventbridge_operate_rules`
call the same functions.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

from eventbridge.config.quantities import parse_rate
from eventbridge.delivery.queue_copies import QUEUE_EXHAUSTED
from eventbridge.errors import UserError
from eventbridge.model.pending import RULE_DISABLED, RULE_PAUSED, TARGET_DISABLED, TARGET_PAUSED
from eventbridge.model.rule_state import OverrideKind
from eventbridge.policy.breaker import pause_of
from eventbridge.rules import RuleSet
from eventbridge.rules.find import find_rule, find_target
from eventbridge.rules.model import Priority
from eventbridge.runtime.operational_events import publish_operational_events
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.visibility import visibility_of

log = logging.getLogger(__name__)
Action = Literal[
    "pause rule", "resume rule", "disable rule", "enable rule", "set priority", "clear priority", "pause target",
    "resume target", "set rate", "clear rate",
]  # fmt: skip
_CLEARS = frozenset({"resume rule", "enable rule", "clear priority", "resume target", "clear rate"})
_OF_TARGET = frozenset({"pause target", "resume target", "set rate", "clear rate"})

#: The actions that running pushes apply.
_APPLIED_BY_PUSHES = frozenset({"pause rule", "pause target", "set rate", "clear rate"})

#: For each action that makes deliveries due: the hold reason of these deliveries.
_ON_HOLD_FOR = {"resume rule": RULE_PAUSED, "resume target": TARGET_PAUSED, "enable rule": RULE_DISABLED}

#: For each action: the kind of override, the sentence for a change, and the sentence if there was nothing to change.
_ACTIONS: dict[str, tuple[OverrideKind, str, str]] = {
    "pause rule": ("paused", "Rule {name} paused", "Rule {name} is already paused"),
    "resume rule": ("paused", "Rule {name} resumed", "Rule {name} is not paused"),
    "disable rule": ("disabled", "Rule {name} disabled", "Rule {name} is already disabled"),
    "enable rule": ("disabled", "Rule {name} enabled", "No override disables rule {name}"),
    "set priority": (
        "priority",
        "Priority of rule {name} set to {value}",
        "The priority of rule {name} is already {value}",
    ),
    "clear priority": ("priority", "Priority of rule {name} cleared", "Rule {name} has no priority override"),
    "pause target": ("paused", "Target {name} paused", "Target {name} is already paused"),
    "resume target": ("paused", "Target {name} resumed", "Target {name} is not paused"),
    "set rate": ("rate", "Rate of target {name} set to {value}", "The rate of target {name} is already {value}"),
    "clear rate": ("rate", "Rate of target {name} cleared", "Target {name} has no rate override"),
}


@dataclass(frozen=True)
class OverrideResult:
    """The result of an operator's action. `changed` is False if the override was already set or cleared.

    `released` is the number of deliveries that are due now because of the action.
    """

    action: str
    rule: str
    target: str
    value: str
    changed: bool
    released: int = 0

    def __str__(self) -> str:
        """Return the result as sentences."""
        name = f"{self.rule}/{self.target}" if self.target else self.rule
        done, already = (text.format(name=name, value=self.value) for text in _ACTIONS[self.action][1:])
        if not self.changed and not self.released:
            return f"{already}."
        waiting = "waiting delivery is" if self.released == 1 else "waiting deliveries are"
        released = f" {self.released:,} {waiting} due now." if self.action in _ON_HOLD_FOR else ""
        when = "within about a second" if self.action in _APPLIED_BY_PUSHES else "with the next task"
        return f"{done}. The change takes effect {when}.{released}"


def operate(
    runtime: Runtime, action: str, rule: str, target: str = "", value: str = "", by: str = ""
) -> OverrideResult:
    """Carry out an operator's action on a rule, or on one of its targets, and return the result.

    `action` is one of `Action`, `value` is the priority or a rate such as 10/s, and `by` is the name of the operator.
    Raises UserError if the action or the value is invalid, if a required target is missing, or if a target is given for
    an action on the whole rule. Raises NotFoundError if the current rules do not have the rule or target. Existing
    overrides of a removed rule or target can still be cleared.
    """
    if action not in _ACTIONS:
        raise UserError(f"there is no action {action!r}. Actions: {', '.join(_ACTIONS)}")
    if (action in _OF_TARGET) != bool(target):
        wanted = (
            "name a target of the rule" if action in _OF_TARGET else "it applies to the whole rule, so omit the target"
        )
        raise UserError(f"{action}: {wanted}")
    kind = _ACTIONS[action][0]
    seen = visibility_of(runtime)
    existing = {(each.rule, each.target, each.kind) for each in runtime.ledger.overrides.all() if seen.rule(each.rule)}
    if action not in _CLEARS or (rule, target, kind) not in existing:
        _require_known(runtime.rule_set(), rule, target)
    if action in _CLEARS:
        changed = runtime.ledger.overrides.clear(rule, target, kind)
        found = OverrideResult(action, rule, target, "", changed, _release(runtime, action, rule, target))
    else:
        kept = _value(action, value)
        found = OverrideResult(
            action, rule, target, value.strip(), runtime.ledger.overrides.set(rule, target, kind, kept, by)
        )
    log.info("%s Requested by %s.", found, by or "an unknown user")
    return found


def _require_known(rules: RuleSet, rule: str, target: str) -> None:
    find_rule(rules, rule)
    if target:
        find_target(rules, rule, target)


def _value(action: str, value: str) -> str:
    """Return a value as the ledger stores it. Raises UserError if it is invalid."""
    if action == "set priority":
        if value not in get_args(Priority):
            raise UserError(f"unknown priority {value!r}. Priorities: {', '.join(get_args(Priority))}")
        return value
    if action == "set rate":
        try:
            return repr(parse_rate(value))
        except ValueError as error:
            raise UserError(str(error)) from None
    if value:
        raise UserError(f"{action} does not accept a value. Remove {value!r}")
    return ""


def _release(runtime: Runtime, action: str, rule: str, target: str) -> int:
    """Make due the deliveries that were waiting only for this action, and return their number.

    If the process dies after the override was cleared but before this, the next retry run makes them due.
    """
    reason = _ON_HOLD_FOR.get(action)
    if reason is None:
        return 0
    return release_for_reason(runtime, rule, reason, target)


def release_for_reason(runtime: Runtime, rule: str, reason: str, target: str = "") -> int:
    """Make due a rule's deliveries with the hold reason `reason`, for one target or all targets. Return their number.

    If another override applies to a delivery, for instance because its target is paused, it stays on hold for that
    reason.
    """
    rows = runtime.ledger.pending.find(state="on_hold", rule=rule)
    on_hold = [row for row in rows if row.hold_reason == reason and row.taken_by is None and target in ("", row.target)]
    overrides = runtime.ledger.overrides.get_effective()
    released = 0
    for name in sorted({row.target for row in on_hold}):
        instead = overrides.hold_reason(rule, name)
        runtime.ledger.pending.release(rule, name, hold_reason=reason, instead=instead)
        released += 0 if instead else sum(row.count for row in on_hold if row.target == name)
    return released


def enable_target(runtime: Runtime, rule: str, target: str) -> int:
    """Set a target's status to ok, and make due the deliveries that were waiting for this.

    They are on hold because the target was disabled, or wait for its pause to end. Returns their number. A dead letter
    queue is a separate target, named `<target>/dead_letter_queue`. The copies that it refused are made due too.
    """
    status = runtime.ledger.targets.statuses().get((rule, target))
    hastened = 0
    now = runtime.ledger.now()
    if status is not None and (until := pause_of(status, now)) is not None:
        # Done before `set_status` ends the pause, so that a second call repeats it if the process dies in between. Rows
        # that are due before the end of the pause are included, because concurrent pushes may be given different ends,
        # and the ledger keeps only the latest. The end is rounded up, because due times are whole seconds.
        last = until.replace(microsecond=0) + timedelta(seconds=1)
        hastened = runtime.ledger.pending.hasten(rule, target, now, last)
    if status is not None and (status.state != "ok" or status.paused_until is not None):
        runtime.ledger.targets.set_status(rule, target, "ok", "enabled by an operator")
    on_hold = [row for row in runtime.ledger.pending.find(state="on_hold", rule=rule) if row.target == target]
    # `aged`, because deliveries on hold for a disabled target age while they wait
    runtime.ledger.pending.release(rule, target, aged=True, hold_reason=TARGET_DISABLED)
    runtime.ledger.pending.release(rule, target, hold_reason=QUEUE_EXHAUSTED)
    publish_operational_events(runtime)
    return hastened + sum(row.count for row in on_hold if row.hold_reason in (TARGET_DISABLED, QUEUE_EXHAUSTED))
