"""`eventbridge rules release`: release a rule that is on hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.output import JsonOption, print_line, show_json
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.table import cell_text, counted

if TYPE_CHECKING:
    from eventbridge.control.release import DeliveryOnHold, Released


def release(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="Name of the rule.")],
    skip: Annotated[
        str | None,
        typer.Option(
            "--skip", metavar="DELIVERY", help="Dead-letter this delivery, at which the rule is on hold, and continue."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Release a rule on hold: routing it failed, its `expect` failed, or it must not dead-letter a delivery.

    Release it once the cause is fixed: its deliveries are due now, and the delivery is tried again, or skipped.
    """
    from eventbridge.control.release import release_rule
    from eventbridge.rules.find import find_rule

    with open_runtime(expects_ledger=True, is_action=True) as runtime:
        find_rule(runtime.rule_set(), rule)
        released = release_rule(runtime, rule, skip)
    if as_json:
        show_json(released)
    else:
        print_line(_summary(released))


def _summary(released: Released) -> str:
    """Return a line for each thing that was released."""
    disabled = [
        f"its target {target} is disabled; deliveries are on hold for that: "
        f"`eventbridge targets enable {released.rule} {target}`"
        for target in released.disabled
    ]
    if released.nothing:
        return "\n".join([f"{released.rule} is not on hold, and nothing waits for a release", *disabled])
    if released.skipped:
        (skipped,) = released.skipped
        return f"{released.rule}: {_delivery(skipped)} becomes a dead letter, and the next delivery is sent"
    lines = [_expectation_line(released)] if released.expectation is not None or released.deliveries else []
    lines += [f"{released.rule}: {_delivery(each)} is tried again" for each in released.retried]
    lines += [
        f"{released.rule}: {_delivery(each)} has nothing to send and stays on hold: "
        f"skip it by --skip {each.delivery_id}"
        for each in released.unsendable
    ]
    if released.hold is not None or released.deferred_matches or released.waits_for:
        lines.insert(0, _routing_line(released))
    return "\n".join([*lines, *disabled])


def _delivery(held: DeliveryOnHold) -> str:
    return f"the delivery {held.delivery_id} to {held.target} ({held.reason})"


def _expectation_line(released: Released) -> str:
    hold = released.expectation
    head = f"{released.rule} is not on hold because of an expectation"
    if hold is not None:
        head = f"{released.rule} released; on hold since {cell_text(hold.since)} UTC ({cell_text(hold.reason)})"
    if not released.deliveries:
        return f"{head}; nothing waits"
    return f"{head}; {counted(released.deliveries, 'delivery', 'deliveries')} that waited are due now"


def _routing_line(released: Released) -> str:
    hold = released.hold
    since = f" since {cell_text(hold.since)} UTC ({cell_text(hold.reason)})" if hold else ""
    head = f"{released.rule} released; on hold{since}" if hold else f"{released.rule} is not on hold"
    if released.waits_for:
        return f"{head}; its deferred matches still wait: {released.waits_for}"
    if not released.deferred_matches:
        return f"{head}; nothing waits"
    deferred_matches = counted(released.deferred_matches, "deferred match", "deferred matches")
    return f"{head}; {deferred_matches} with {counted(released.events, 'event', 'events')} are due now"
