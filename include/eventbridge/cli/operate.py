"""Defines commands that change rules and targets: pause, resume, disable, enable, priority, rate, release, publish."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from eventbridge.cli.interrupt import Interrupts
from eventbridge.cli.output import JsonOption, cell_text, confirm, plural, print_line, show_document, warn
from eventbridge.cli.runtime import open_runtime, user
from eventbridge.errors import EventBridgeError, UserError

if TYPE_CHECKING:
    from eventbridge.control.publish_rules import PublishedRules
    from eventbridge.control.release import DeliveryOnHold, Released
    from eventbridge.rules import RuleSet
    from eventbridge.runtime.runtime import Runtime

RuleArgument = Annotated[str, typer.Argument(metavar="RULE", help="Name of the rule.")]
TargetArgument = Annotated[str, typer.Argument(metavar="RULE/TARGET", help="The names of the rule and the target.")]
#: The second word of `RULE TARGET`, which commands still take; only `RULE/TARGET` is documented.
TargetName = Annotated[str | None, typer.Argument(metavar="TARGET", hidden=True)]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
ClearOption = Annotated[
    bool, typer.Option("--clear", help="Remove the override: use the value of the rule file again.")
]


def pause_rule(rule: RuleArgument, as_json: JsonOption = False) -> None:
    """Pause a rule, for hours or days: its deliveries wait, events are still matched, and no other rule waits."""
    _operate("pause rule", rule, as_json=as_json)


def resume_rule(rule: RuleArgument, as_json: JsonOption = False) -> None:
    """Resume a paused rule: its waiting deliveries become due, and have not aged meanwhile."""
    _operate("resume rule", rule, as_json=as_json)


def disable_rule(rule: RuleArgument, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Disable a rule, like `enabled: false` in its file: it matches nothing.

    It never delivers events that arrive while it is disabled. Its pending deliveries are on hold until you enable it.
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
    priority: Annotated[str, typer.Argument(metavar="high|medium|low", help="The new priority.")] = "",
    clear: ClearOption = False,
    as_json: JsonOption = False,
) -> None:
    """Override the priority of a rule: the weight of its push tasks and, without a pool of its own, its shared pool."""
    _operate(*_set_or_clear("priority", priority, clear, rule), value=priority, as_json=as_json)


def pause_target(rule: TargetArgument, target: TargetName = None, as_json: JsonOption = False) -> None:
    """Pause one target: its deliveries wait, deliveries to the rule's other targets do not."""
    _operate("pause target", rule, target, as_json=as_json)


def resume_target(rule: TargetArgument, target: TargetName = None, as_json: JsonOption = False) -> None:
    """Resume a paused target: its waiting deliveries become due, and have not aged meanwhile."""
    _operate("resume target", rule, target, as_json=as_json)


def set_rate(
    target: TargetArgument,
    rate: Annotated[str, typer.Argument(metavar="RATE", help="The new rate, e.g. 10/s or 300/m.")] = "",
    clear: ClearOption = False,
    as_json: JsonOption = False,
) -> None:
    """Override the rate of a target: the maximum number of deliveries it gets, from all pushes together."""
    action, about = _set_or_clear("rate", rate, clear, target)
    _operate(action, about, None, value=rate, as_json=as_json)


def _set_or_clear(setting: str, value: str, clear: bool, name: str) -> tuple[str, str]:
    if bool(value) == clear:
        raise typer.BadParameter(f"give either a {setting} or --clear")
    return f"{'clear' if clear else 'set'} {setting}", name


def parse_target(runtime: Runtime, about: str, target: str | None) -> tuple[str, str]:
    """Return the rule and the target, given as RULE/TARGET or as two words. Raises UserError if no target is named."""
    rule = about
    if target is None:
        rule, _, target = about.partition("/")
    if not rule or not target:
        raise UserError(f"{about!r} names no target of a rule. {_suggestion(runtime.rule_set(), about.strip('/'))}")
    return rule, target


def _suggestion(rules: RuleSet, name: str) -> str:
    """Return advice that lists the targets whose rule or own name is `name`, or the targets with the nearest names."""
    from eventbridge.similar_names import list_names, suggest

    targets = {f"{rule.name}/{target}": target for rule in rules.rules.values() for target in rule.destinations}
    fitting = [full for full, target in targets.items() if name in (full.removesuffix(f"/{target}"), target)]
    if len(fitting) == 1:
        return f"Did you mean {fitting[0]}?"
    remedy = f"Targets: {list_names(fitting)}" if fitting else suggest("Targets", name, targets)
    return f"Write RULE/TARGET. {remedy}"


def _check_rule(rule: str) -> None:
    """Raise NotFoundError for a rule that no rule file defines, before the user is asked to confirm anything."""
    from eventbridge.rules.find import find_rule

    with open_runtime(expects_ledger=True) as runtime:
        find_rule(runtime.rule_set(), rule)


def _operate(action: str, about: str, target: str | None = "", *, value: str = "", as_json: bool) -> None:
    from eventbridge.control.overrides import operate

    with open_runtime(expects_ledger=True, is_action=True) as runtime:
        rule, target = (about, "") if target == "" else parse_target(runtime, about, target)
        result = operate(runtime, action, rule, target, value, by=user())
    if as_json:
        show_document(result)
    else:
        print_line(str(result))


def release(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="Name of the rule.")],
    skip: Annotated[
        str | None,
        typer.Option("--skip", metavar="DELIVERY", help="Dead-letter the delivery that blocks the rule, and continue."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Release a rule on hold: its routing or `expect` failed, or a delivery that must not be dead-lettered blocks it.

    Release it once the cause is fixed: its deliveries become due, and a blocking delivery is tried again, or skipped.
    """
    from eventbridge.control.release import release_rule
    from eventbridge.rules.find import find_rule

    with open_runtime(expects_ledger=True, is_action=True) as runtime:
        find_rule(runtime.rule_set(), rule)
        released = release_rule(runtime, rule, skip)
    if as_json:
        show_document(released)
    else:
        print_line(_release_text(released))


def _release_text(released: Released) -> str:
    """Return a line for each hold that was released, and for each that remains."""
    disabled = [
        f"its target {target} is disabled, so its deliveries stay on hold; to enable it: "
        f"`eventbridge targets enable {released.rule} {target}`"
        for target in released.disabled
    ]
    if released.nothing:
        return "\n".join([f"Rule {released.rule} is not on hold, and nothing waits for a release", *disabled])
    if released.skipped:
        (skipped,) = released.skipped
        return f"{released.rule}: {_delivery_text(skipped)} becomes a dead letter, and the next delivery is sent"
    lines = [_expectation_line(released)] if released.expectation is not None or released.released else []
    lines += [f"{released.rule}: {_delivery_text(each)} is tried again" for each in released.retried]
    lines += [
        f"{released.rule}: {_delivery_text(each)} has no payload, so it stays on hold. "
        f"To skip it, run `eventbridge rules release {released.rule} --skip {each.delivery_id}`"
        for each in released.unsendable
    ]
    if released.hold is not None or released.deferred_matches or released.waits_for:
        lines.insert(0, _routing_line(released))
    return "\n".join([*lines, *disabled])


def _delivery_text(on_hold: DeliveryOnHold) -> str:
    return f"the delivery {on_hold.delivery_id} to {on_hold.target} ({on_hold.reason})"


def _expectation_line(released: Released) -> str:
    hold = released.expectation
    head = f"Rule {released.rule} is not on hold because of an expectation"
    if hold is not None:
        since = f"{cell_text(hold.since)} UTC ({cell_text(hold.reason)})"
        head = f"Rule {released.rule} released; it was on hold since {since}"
    if not released.released:
        return f"{head}; nothing waits"
    return f"{head}; due now: {plural(released.released, 'delivery', 'deliveries')}"


def _routing_line(released: Released) -> str:
    hold = released.hold
    since = f" since {cell_text(hold.since)} UTC ({cell_text(hold.reason)})" if hold else ""
    head = f"Rule {released.rule} released; it was on hold{since}" if hold else f"Rule {released.rule} is not on hold"
    if released.waits_for:
        return f"{head}; its deferred matches stay on hold: {released.waits_for}"
    if not released.deferred_matches:
        return f"{head}; nothing waits"
    deferred_matches = plural(released.deferred_matches, "deferred match", "deferred matches")
    return f"{head}; due now: {deferred_matches} with {plural(released.events, 'event', 'events')}"


def publish_rules(
    folder: Annotated[
        str | None,
        typer.Option(
            "--rules",
            metavar="FOLDER",
            help="Folder of rule files, or s3://CONNECTION@BUCKET/PREFIX; default: EVENTBRIDGE_RULES_FOLDER.",
        ),
    ] = None,
    empty: Annotated[
        bool, typer.Option("--empty", help="Publish even if there are no rules: all rules are removed.")
    ] = False,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            metavar="SECONDS",
            min=0.1,
            help="Keep running, and check for changes every SECONDS seconds.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check the rule files and publish them to every host whose EVENTBRIDGE_RULES_FROM is `published`.

    On these hosts, only this command adds, changes and removes rules. If the files have errors, nothing changes.
    """
    from eventbridge.control.publish_rules import publish_rules as publish
    from eventbridge.runtime.bucket_rules import load_rule_files

    with open_runtime(is_action=True) as runtime:

        def once() -> PublishedRules:
            rules = runtime.rule_files() if folder is None else load_rule_files(folder, runtime.connections)
            return publish(runtime, rules, empty=empty)

        if watch is not None:
            _keep_publishing(once, watch)
        published = once()
    if as_json:
        show_document(published)
    else:
        _show_published(published)


def _keep_publishing(once: Callable[[], PublishedRules], seconds: float) -> NoReturn:
    """Publish whenever the files change, until a signal ends the command; report an error that repeats only once."""
    with Interrupts() as interrupts:
        interrupts.begin()
        before = ""
        while not interrupts.stop.is_set():
            try:
                published = once()
            except EventBridgeError as error:
                if str(error) != before:
                    warn(f"{error} The rules that were published before stay in force.")
                before = str(error)
            else:
                if before or published.changed or published.removed:
                    _show_published(published)
                before = ""
            interrupts.stop.wait(seconds)
    raise typer.Exit(interrupts.exit_code)


def _show_published(published: PublishedRules) -> None:
    for what, names in (("changed", published.changed), ("removed", published.removed)):
        for name in names:
            print_line(f"{what}: {name}")
    rules = plural(published.rules, "rule", "rules")
    if not (published.changed or published.removed):
        print_line(f"{rules} published. None has changed since the last time.")
        return
    print_line(
        f"{rules} published, {len(published.changed):,} changed or added, {len(published.removed):,} removed. "
        f"The next batch of each runner uses {'it' if published.rules == 1 else 'them'}."
    )
