"""`eventbridge rules pause|resume|disable|enable|priority` and `targets pause|resume|rate`: overrides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.noted import user
from eventbridge.cli.output import JsonOption, confirm, print_line, show_json
from eventbridge.cli.runtime import open_runtime
from eventbridge.errors import UserError

if TYPE_CHECKING:
    from eventbridge.rule import RuleSet
    from eventbridge.stages.runtime.runtime import Runtime

RuleArgument = Annotated[str, typer.Argument(metavar="RULE", help="Name of the rule.")]
TargetArgument = Annotated[str, typer.Argument(metavar="RULE/TARGET", help="The rule's name and the target's.")]
TargetName = Annotated[
    str | None,
    typer.Argument(metavar="[TARGET]", help="The target's name, unless RULE/TARGET gives it.", show_default=False),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
ClearOption = Annotated[bool, typer.Option("--clear", help="Go back to what the rule file says.")]


def pause_rule(rule: RuleArgument, as_json: JsonOption = False) -> None:
    """Pause a rule: events go on being matched, its deliveries wait, nobody else does. For hours or for days."""
    _operate("pause rule", rule, as_json=as_json)


def resume_rule(rule: RuleArgument, as_json: JsonOption = False) -> None:
    """Let a paused rule go on: what waited is due now, and did not age meanwhile."""
    _operate("resume rule", rule, as_json=as_json)


def disable_rule(rule: RuleArgument, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Disable a rule, as `enabled: false` in its file does: nothing is matched, events pass it by for ever.

    What is pending of it is on hold until it is enabled.
    """
    if not yes:
        confirm(f"Events that arrive while {rule} is disabled are never delivered by it.", "Disable it?")
    _operate("disable rule", rule, as_json=as_json)


def enable_rule(rule: RuleArgument, as_json: JsonOption = False) -> None:
    """Enable a rule that was disabled by command; one that its file disables stays so."""
    _operate("enable rule", rule, as_json=as_json)


def set_priority(
    rule: RuleArgument,
    priority: Annotated[str, typer.Argument(metavar="[high|medium|low]", help="The priority from now on.")] = "",
    clear: ClearOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give a rule another priority than its file says: its weight, and the shared pool of rules without their own."""
    _operate(*_set_or_clear("priority", priority, clear, rule), value=priority, as_json=as_json)


def pause_target(rule: TargetArgument, target: TargetName = None, as_json: JsonOption = False) -> None:
    """Pause one target: its deliveries wait, the rule's other targets get theirs."""
    _operate("pause target", rule, target, as_json=as_json)


def resume_target(rule: TargetArgument, target: TargetName = None, as_json: JsonOption = False) -> None:
    """Let a paused target go on: what waited is due now, and did not age meanwhile."""
    _operate("resume target", rule, target, as_json=as_json)


def set_rate(
    target: TargetArgument,
    rate: Annotated[str, typer.Argument(metavar="[RATE]", help="From now on, e.g. 10/s or 300/m.")] = "",
    clear: ClearOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give a target another rate than its file says: how many deliveries it may get, from all pushes together."""
    action, about = _set_or_clear("rate", rate, clear, target)
    _operate(action, about, None, value=rate, as_json=as_json)


def _set_or_clear(what: str, value: str, clear: bool, name: str) -> tuple[str, str]:
    if bool(value) == clear:
        raise typer.BadParameter(f"give a {what}, or --clear: one of the two")
    return f"{'clear' if clear else 'set'} {what}", name


def named(runtime: Runtime, about: str, target: str | None) -> tuple[str, str]:
    """Return rule and target, given as RULE/TARGET or as two words; raises UserError if no target is named."""
    rule = about
    if target is None:
        rule, _, target = about.partition("/")
    if not rule or not target:
        raise UserError(f"{about!r} names no target of a rule. {_targets_meant(runtime.rule_set(), about.strip('/'))}")
    return rule, target


def _targets_meant(rules: RuleSet, name: str) -> str:
    """Return the targets of a rule of this name, or the targets of this name, or else what is nearest to it."""
    from eventbridge.rule.suggestions import listed, suggest

    targets = {f"{rule.name}/{target}": target for rule in rules.rules.values() for target in rule.destinations}
    fitting = [full for full, target in targets.items() if name in (full.removesuffix(f"/{target}"), target)]
    if len(fitting) == 1:
        return f"Did you mean {fitting[0]}?"
    remedy = f"Targets: {listed(fitting)}" if fitting else suggest("Targets", name, targets)
    return f"Write RULE/TARGET. {remedy}"


def _operate(action: str, about: str, target: str | None = "", *, value: str = "", as_json: bool) -> None:
    from eventbridge.stages.operate.overrides import operate

    with open_runtime(looking=True, acting=True) as runtime:
        rule, target = (about, "") if target == "" else named(runtime, about, target)
        said = operate(runtime, action, rule, target, value, by=user())
    if as_json:
        show_json(said)
    else:
        print_line(str(said))
