"""Defines the command `events why`, which traces an event: its position, which rules matched, and every attempt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.output import (
    JsonOption,
    cell_text,
    note,
    plural,
    print_line,
    show_document,
    show_fields,
    show_table,
    visible,
    warn,
)
from eventbridge.cli.runtime import open_runtime

if TYPE_CHECKING:
    from eventbridge.model.why import DeliveryResult, EventResult, RuleResult, Step, Why

_STATUS = {
    "valid": "valid",
    "duplicate": "duplicate: its batch already has the event and kept it once",
    "malformed": "malformed: not a valid event; no rule was evaluated",
    None: "unknown: retention removed the landed event",
}
_CHANGES = {
    "changed": "the rule has changed since",
    "removed": "removed since",
    "added": "added since",
    "unknown": "the current rule files cannot be read",
}


def why(
    event_id: Annotated[
        str,
        typer.Argument(
            metavar="EVENT_ID", help="The event's `id`, exactly as published, or a delivery id (`webhook-id`)."
        ),
    ],
    bus: Annotated[str | None, typer.Option(metavar="BUS", help="Only on this bus; default: on all.")] = None,
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Only batches planned since TIME: RFC 3339, or an age such as 2h."),
    ] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Only batches planned before TIME.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Trace an event: its position on the bus, which rules matched or why not, every delivery and every attempt.

    Shows every message with the id, on every bus and from every source, including duplicates and invalid events.
    Exit code 2 if no message has the id, 1 if a file that may hold it cannot be read.
    """
    from eventbridge.views.trace.explain import why_between

    with open_runtime(expects_ledger=True) as runtime:
        found = why_between(runtime, event_id, bus, since, until)
    if as_json:
        show_document(found)
    else:
        _show(found)
    for each in found.notes:
        note(each)
    for each in found.unreadable:
        warn(f"the trace may be incomplete: {each}")
    if found.unreadable:
        raise typer.Exit(1)


def _show(trace: Why) -> None:
    for number, event in enumerate(trace.events):
        if number:
            print_line()
        _show_event(trace.event_id, event)
    if trace.events and trace.not_landed:
        print_line()
    for position in trace.not_landed:
        print_line(f"{visible(trace.event_id)} at {visible(str(position))}: not landed yet")
    for each in trace.before_start:
        print_line(f"{visible(trace.event_id)} at {visible(str(each))}")
    more = len(trace.events) + len(trace.not_landed) + len(trace.before_start)
    if more > 1:
        print_line()
        print_line(f"{plural(more, 'message has', 'messages have')} this id")


def _show_event(event_id: str, event: EventResult) -> None:
    show_fields(_facts(event_id, event))
    if event.status == "valid":
        print_line()
        _show_rules(event.rules)
        print_line()
        show_table(
            "Deliveries, times in UTC",
            ["rule/target", "delivery", "status", "attempts", "reason"],
            [_delivery(each) for each in event.deliveries],
        )
    print_line()
    show_table(
        "What happened, times in UTC",
        ["time", "what", "rule/target", "attempt", "status", "detail", "batch"],
        [_step(each) for each in event.steps],
        ids=["batch"],
    )


def _facts(event_id: str, event: EventResult) -> Iterator[tuple[str, object]]:
    yield "event", event_id
    yield "source", event.source
    yield "type", event.type
    yield "position", str(event.position)
    yield "status", _STATUS[event.status]
    yield "reason", event.reason
    yield "kept instead", event.duplicate_of
    yield "published at", event.published_at
    for each in event.landings:
        yield "landed at", each.arrived_at
        yield "archive file", f"{each.file}, row {each.row}"
        yield "batch", f"{each.batch_id}, {each.state}, of runner {each.runner}"


def _show_rules(rules: tuple[RuleResult, ...]) -> None:
    if not rules:
        print_line("Rules: none")
        return
    print_line("Rules, as they were when the batch was planned")
    for rule in rules:
        print_line(visible(f"  {_match_text(rule)}  {rule.rule} {rule.version}{_compared(rule)}"))
        for each in rule.conditions:
            print_line(visible(f"      {'met' if each.met else 'NOT MET'}  {each.path}: {each.message}"))
        if rule.where is not None and rule.matched:
            result = {True: "met", False: "NOT MET", None: "not evaluated yet"}[rule.where_met]
            print_line(visible(f"      {result}  where: {rule.where}"))


def _match_text(rule: RuleResult) -> str:
    if not rule.enabled:
        return "disabled"
    return "matched " if rule.matched and rule.where_met is not False else "no match"


def _compared(rule: RuleResult) -> str:
    if rule.change == "same":
        return ""
    difference = _CHANGES[rule.change]
    if rule.current_version_matches is not None:
        difference += f"; the current version {'matches' if rule.current_version_matches else 'does not match'}"
    return f" ({difference})"


def _delivery(result: DeliveryResult) -> list[object]:
    status = result.state if result.due_at is None else f"{result.state} {cell_text(result.due_at)}"
    if result.hold_reason:
        status = f"on hold: {result.hold_reason}"
    replay = f" of replay {result.replay_id[:8]}" if result.replay_id else ""
    return [f"{result.rule}/{result.target}", result.delivery_id, status + replay, result.attempts, result.reason or ""]


def _step(step: Step) -> list[object]:
    of = "/".join(filter(None, (step.rule, step.target)))
    code = None if step.code is None else f"HTTP {step.code}"
    took = None if step.duration_ms is None else f"{step.duration_ms:,.0f} ms"
    reason = None if step.reason and (step.detail or "").startswith(step.reason) else step.reason
    detail = [part for part in (reason, code, step.detail, took) if part]
    return [step.at, step.what, of, step.attempt, step.outcome or "", ", ".join(detail), step.batch_id]
