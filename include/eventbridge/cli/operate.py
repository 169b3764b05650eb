"""`eventbridge rules pause|resume|disable|enable|priority` and `targets pause|resume|rate`: overrides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.output import JsonOption, confirm, print_line, show_json
from eventbridge.cli.recorded_action import user
from eventbridge.cli.runtime import open_runtime
from eventbridge.errors import UserError

if TYPE_CHECKING:
    from eventbridge.rules import RuleSet
    from eventbridge.runtime.runtime import Runtime

RuleArgument = Annotated[str, typer.Argument(metavar="RULE", help="Name of the rule.")]
TargetArgument = Annotated[str, typer.Argument(metavar="RULE/TARGET", help="The rule's name and the target's.")]
TargetName = Annotated[
    str | None,
    typer.Argument(metavar="[TARGET]", help="The target's name, unless RULE/TARGET gives it.", show_default=False),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
ClearOption = Annotated[bool, typer.Option("--clear", help="Use the value of the rule file again.")]


def pause_rule(rule: RuleArgument, as_json: JsonOption = False) -> None:
    """Pause a rule: its deliveries wait, events are still matched, and no other rule waits. For hours or days."""
    _operate("pause rule", rule, as_json=as_json)


def resume_rule(rule: RuleArgument, as_json: JsonOption = False) -> None:
    """Resume a paused rule: deliveries that waited are due now, and did not age meanwhile."""
    _operate("resume rule", rule, as_json=as_json)


def disable_rule(rule: RuleArgument, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Disable a rule, like `enabled: false` in its file: it matches nothing, and never delivers events that arrive now.

    Its pending deliveries are on hold until you enable it.
    """
    if not yes:
        _check_rule(rule)
        confirm(f"Rule {rule} never delivers events that arrive while it is disabled.", "Disable it?")
    _operate("disable rule", rule, as_json=as_json)


def enable_rule(rule: RuleArgument, as_json: JsonOption = False) -> None:
    """Enable a rule that an override disabled; a rule that its file disables stays disabled."""
    _operate("enable rule", rule, as_json=as_json)


def set_priority(
    rule: RuleArgument,
    priority: Annotated[str, typer.Argument(metavar="[high|medium|low]", help="The new priority.")] = "",
    clear: ClearOption = False,
    as_json: JsonOption = False,
) -> None:
    """Override the priority in the rule's file: its weight and, if it has no pool of its own, its shared pool."""
    _operate(*_set_or_clear("priority", priority, clear, rule), value=priority, as_json=as_json)


def pause_target(rule: TargetArgument, target: TargetName = None, as_json: JsonOption = False) -> None:
    """Pause one target: its deliveries wait, deliveries to the rule's other targets do not."""
    _operate("pause target", rule, target, as_json=as_json)


def resume_target(rule: TargetArgument, target: TargetName = None, as_json: JsonOption = False) -> None:
    """Resume a paused target: deliveries that waited are due now, and did not age meanwhile."""
    _operate("resume target", rule, target, as_json=as_json)


def set_rate(
    target: TargetArgument,
    rate: Annotated[str, typer.Argument(metavar="[RATE]", help="The new rate, e.g. 10/s or 300/m.")] = "",
    clear: ClearOption = False,
    as_json: JsonOption = False,
) -> None:
    """Override the rate in the rule's file: the most deliveries the target gets, from all pushes together."""
    action, about = _set_or_clear("rate", rate, clear, target)
    _operate(action, about, None, value=rate, as_json=as_json)


def _set_or_clear(what: str, value: str, clear: bool, name: str) -> tuple[str, str]:
    if bool(value) == clear:
        raise typer.BadParameter(f"give a {what} or --clear, but not both")
    return f"{'clear' if clear else 'set'} {what}", name


def parse_target(runtime: Runtime, about: str, target: str | None) -> tuple[str, str]:
    """Return rule and target, given as RULE/TARGET or as two words; raises UserError if no target is named."""
    rule = about
    if target is None:
        rule, _, target = about.partition("/")
    if not rule or not target:
        raise UserError(f"{about!r} names no target of a rule. {_suggestion(runtime.rule_set(), about.strip('/'))}")
    return rule, target


def _suggestion(rules: RuleSet, name: str) -> str:
    """Return the targets of a rule of this name, or the targets of this name, or else the nearest names."""
    from eventbridge.similar_names import listed, suggest

    targets = {f"{rule.name}/{target}": target for rule in rules.rules.values() for target in rule.destinations}
    fitting = [full for full, target in targets.items() if name in (full.removesuffix(f"/{target}"), target)]
    if len(fitting) == 1:
        return f"Did you mean {fitting[0]}?"
    remedy = f"Targets: {listed(fitting)}" if fitting else suggest("Targets", name, targets)
    return f"Write RULE/TARGET. {remedy}"


def _check_rule(rule: str) -> None:
    """Raise NotFoundError for a rule that no rule file names, before anybody confirms anything about it."""
    from eventbridge.rules.find import find_rule

    with open_runtime(expects_ledger=True) as runtime:
        find_rule(runtime.rule_set(), rule)


def _operate(action: str, about: str, target: str | None = "", *, value: str = "", as_json: bool) -> None:
    from eventbridge.control.overrides import operate

    with open_runtime(expects_ledger=True, is_action=True) as runtime:
        rule, target = (about, "") if target == "" else parse_target(runtime, about, target)
        result = operate(runtime, action, rule, target, value, by=user())
    if as_json:
        show_json(result)
    else:
        print_line(str(result))
