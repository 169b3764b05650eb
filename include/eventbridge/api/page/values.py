"""Returns the values of each page from the functions that the command line uses; templates only format them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from fastapi import Request

from eventbridge.api.documents import MAX_DEAD_LETTERS, DeadLetterQuery, dead_letter_named, rule_document, with_name
from eventbridge.api.page.chart import counts_chart, latency_chart, responses_chart, success_chart
from eventbridge.api.page.period import period_links, period_of
from eventbridge.api.payloads import (
    HIDDEN,
    can_see_payloads,
    visible_dead_letter,
    visible_error,
    visible_groups,
    visible_trace,
)
from eventbridge.dead_letters.reader import DeadLetter, DeadLetterGroup, read_dead_letter
from eventbridge.dead_letters.redrives import Marks
from eventbridge.dead_letters.selection import REASONS
from eventbridge.errors import NotFoundError
from eventbridge.event.json_document import write_document
from eventbridge.event.json_text import plain
from eventbridge.model.why import EventResult, RuleResult, Step
from eventbridge.rules.find import find_target
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.event_status import status_of_event
from eventbridge.views.queues import queue_of_target
from eventbridge.views.requests import recent_responses
from eventbridge.views.rules import rule_text, rule_versions
from eventbridge.views.stats import rule_days
from eventbridge.views.status import rules_on_hold
from eventbridge.views.target_status import target_lines, target_page
from eventbridge.views.timeline import last_hours, rule_timeline
from eventbridge.views.trace.explain import archived_body, why

_MICROSECOND = timedelta(microseconds=1)
_LISTED_RULES = 100
_COST_DAYS = 7
#: The number of attempts at a delivery, one after the other, from which those in the middle are folded.
_SHOWN_ATTEMPTS = 3


#: What a page says after an action of a button, and the action that undoes it. A redirect names the action, so that the
#: text of a page comes from here, and never from its URL.
DONE: Final = {
    "pause rule": ("The rule is paused. Its deliveries wait.", "resume rule"),
    "resume rule": ("The rule is resumed.", "pause rule"),
    "pause target": ("The target is paused. Its deliveries wait.", "resume target"),
    "resume target": ("The target is resumed.", "pause target"),
    "disable rule": ("The rule is disabled. Events that arrive now are not delivered by it.", "enable rule"),
    "enable rule": ("The rule is enabled.", "disable rule"),
    "enable target": ("The target is enabled. What waits for it is sent.", ""),
    "release rule": ("The rule is released.", ""),
    "set priority": ("The priority is set.", "clear priority"),
    "clear priority": ("The priority is that of the rule file.", ""),
    "set rate": ("The rate is set.", "clear rate"),
    "clear rate": ("The rate is that of the rule file.", ""),
}


@dataclass(frozen=True)
class ShownEvent:
    """One message with the id of an event: its status over all deliveries, its steps, and the result of each rule.

    `steps` are in groups of attempts at the same delivery; the attempts of a group that is folded are shown on demand.
    """

    message: EventResult
    body: str | None
    status: str
    attempts: int
    steps: tuple[tuple[bool, tuple[Step, ...]], ...]
    matched: tuple[RuleResult, ...]
    unmatched: tuple[RuleResult, ...]

    @property
    def rules(self) -> tuple[RuleResult, ...]:
        """The results of all rules, those that matched first."""
        return self.matched + self.unmatched


def event(runtime: Runtime, request: Request, event_id: str, *, every_rule: bool, rule: str) -> dict[str, Any]:
    """Return the trace of every message with an event id or, if there is none, `error`.

    If `every_rule`, all rules that do not match are included, otherwise only some. If `rule` is not empty, it is the
    only rule that is explained.
    """
    try:
        most = None if every_rule or rule else _LISTED_RULES
        found = visible_trace(request, why(runtime, event_id, max_unmatched=most, rule=rule or None))
    except NotFoundError as error:
        return {"event_id": event_id, "error": str(error)}
    event_id = found.event_id  # a delivery id finds its event
    return {
        "event_id": event_id,
        "why": found,
        "messages": [_shown_event(runtime, request, each) for each in found.events],
        "more_rules": most is not None
        and any(sum(not rule.matched for rule in each.rules) >= most for each in found.events),
        "resend": lambda message, rule, target: resend_form(event_id, message, rule, target),
    }


def _shown_event(runtime: Runtime, request: Request, message: EventResult) -> ShownEvent:
    steps = []
    for is_attempt, group in itertools.groupby(
        message.steps, key=lambda each: each.what == "attempt" and each.delivery_id
    ):
        part = tuple(group)
        hidden = part[_SHOWN_ATTEMPTS - 1 : -1] if is_attempt and len(part) > _SHOWN_ATTEMPTS else ()
        if hidden:
            steps += [(False, part[: _SHOWN_ATTEMPTS - 1]), (True, hidden), (False, part[-1:])]
        else:
            steps.append((False, part))
    return ShownEvent(
        message=message,
        body=archived_body(runtime, message) if can_see_payloads(request) else HIDDEN,
        status=status_of_event(message),
        attempts=sum(each.what == "attempt" for each in message.steps),
        steps=tuple(steps),
        matched=tuple(each for each in message.rules if each.matched),
        unmatched=tuple(each for each in message.rules if not each.matched),
    )


def resend_form(event_id: str, message: EventResult, rule: str, target: str) -> dict[str, str]:
    """Return the form of a replay of only this message, for a rule or one of its targets."""
    times = [each.planned_at for each in message.landings]
    return {
        "bus": message.position.bus,
        "from": min(times).isoformat(),
        "to": (max(times) + _MICROSECOND).isoformat(),
        "rules": rule,
        "targets": target,
        "pattern": write_document({"id": [event_id], "source": [message.source]}),
    }


def rules(runtime: Runtime, after: str, find: str) -> dict[str, Any]:
    """Return a page of rules in force whose names contain `find` and follow `after`, and the rules on hold."""
    found = runtime.rule_set()
    names = sorted(name for name in found.rules if name > after and find in name)
    shown = [found.rules[name] for name in names[:_LISTED_RULES]]
    return {
        "rules": shown,
        "hours": last_hours(runtime, shown),
        "set": {(each.rule, each.kind): each for each in runtime.ledger.overrides.all() if not each.target},
        "owner_of": found.owner_of,
        "on_hold": {each.rule: each for each in rules_on_hold(runtime, found)},
        "count": len(found.rules),
        "find": find,
        "cursor": shown[-1].name if len(names) > len(shown) else None,
    }


def rule(runtime: Runtime, request: Request, name: str) -> dict[str, Any]:
    """Return a rule, the state of its targets, and its throughput, cost and versions."""
    document = rule_document(runtime, name)
    today = runtime.rule_set()
    lines = target_lines(runtime, name)
    recent = rule_timeline(runtime, name, period_of(request).times(runtime.clock()))[""]
    charts = [
        counts_chart(recent, "rate", "Deliveries", events=False),
        success_chart(recent, "success", "Success rate"),
    ]
    overrides = [each for each in runtime.ledger.overrides.all() if each.rule == name]
    return {
        "rule": name,
        "said": DONE,
        "owner": today.owner_of(today.rules[name]),
        "description": today.rules[name].description,
        "document": write_document(document),
        "enabled": document["enabled"],
        "targets": lines,
        "overrides": overrides,
        "paused": {each.target for each in overrides if each.kind == "paused"},
        "disabled": any(each.kind == "disabled" for each in overrides),
        "on_hold": any(each.rule == name for each in rules_on_hold(runtime, today)),
        "charts": charts,
        "period_links": list(period_links(request)),
        "version": today.rules[name].version,
        "priority": next((each.value for each in overrides if each.kind == "priority"), today.rules[name].priority),
        "written": rule_text(runtime, today, name),
        "days": rule_days(runtime, name, _COST_DAYS),
        "versions": rule_versions(runtime, name),
    }


def target(runtime: Runtime, request: Request, rule: str, name: str) -> dict[str, Any]:
    """Return the state of one of a rule's targets, its throughput, and its last responses."""
    find_target(runtime.rule_set(), rule, name)
    lines = [line for line in target_lines(runtime, rule) if line.target == name]
    recent = rule_timeline(runtime, rule, period_of(request).times(runtime.clock()))[name]
    last = recent_responses(runtime, rule, name)
    charts = [
        counts_chart(recent, "rate", "Deliveries", events=False),
        latency_chart(recent, "times", "Latency"),
        success_chart(recent, "success", "Success rate"),
        responses_chart(last.classes, runtime.ledger.now(), "responses", "Responses by class"),
    ]
    shown = can_see_payloads(request)
    responses = [
        (
            replace(each, error=visible_error(request, each.reason, each.error)),
            each.head if shown or not each.head else HIDDEN,
        )
        for each in last.newest
    ]
    overrides = [each for each in runtime.ledger.overrides.all() if (each.rule, each.target) == (rule, name)]
    paused = any(each.kind == "paused" for each in overrides)
    values = {
        "said": DONE,
        "rule": rule,
        "target": name,
        "targets": lines,
        "charts": charts,
        "period_links": list(period_links(request)),
    }
    queue = queue_of_target(runtime, rule, name)
    return values | {"responses": responses, "overrides": overrides, "paused": paused, "queue": queue}


def targets(runtime: Runtime, after: str, find: str) -> dict[str, Any]:
    """Return unhealthy targets, and a page of the targets of those rules whose names contain `find` and follow
    `after`."""
    page, rules = target_page(runtime, after, find), runtime.rule_set().rules
    names = {each.rule for each in (*page.targets, *page.unhealthy) if each.rule in rules}
    hours = last_hours(runtime, [rules[each] for each in sorted(names)])
    return vars(page) | {"find": find, "first": not after, "hours": hours}


def dead_letters(runtime: Runtime, request: Request, query: DeadLetterQuery) -> dict[str, Any]:
    """Return the matching dead letters that are open, or were redriven, with their marks, and their causes."""
    by = "letter" if request.query_params.get("by") == "letter" else "cause"
    tab = "redriven" if request.query_params.get("tab") == "redriven" else "open"
    if by == "cause":
        query = replace(query, limit=MAX_DEAD_LETTERS)
    found, damaged = query.dead_letters(request, runtime)
    records = [visible_dead_letter(request, each) for each in found.records()]
    marks = Marks(runtime)
    every = [
        (with_name(each), marks.mark(dead_letter))
        for each, dead_letter in zip(records, found.dead_letters, strict=True)
    ]
    marked = [(each, mark) for each, mark in every if (mark is not None) == (tab == "redriven")]
    unreadable = [str(error) for error in (damaged | marks.damaged).values()]
    return {
        "query": query,
        "reasons": REASONS,
        "cursor": found.cursor,
        "by": by,
        "tab": tab,
        "counts": {
            "open": sum(mark is None for _, mark in every),
            "redriven": sum(mark is not None for _, mark in every),
        },
        "read": len(every),
        "dead_letters": marked,
        "causes": _causes([each for each, _ in marked]) if by == "cause" else [],
        "unreadable": unreadable,
    }


@dataclass(frozen=True)
class ShownCause:
    """The dead letters with the same cause: how many there are, the times of the first and the last, and a sample."""

    group: DeadLetterGroup
    first: datetime
    last: datetime
    sample: str | None


def _causes(records: list[dict[str, Any]]) -> list[ShownCause]:
    of_cause: dict[tuple[str | None, ...], list[dict[str, Any]]] = {}
    for each in records:
        (group,) = visible_groups([each])
        of_cause.setdefault((group.rule, group.target, group.reason, group.error), []).append(each)
    found = []
    for letters in of_cause.values():
        (group,) = visible_groups(letters)
        times = [each["last_attempt_at"] or each["arrived_at"] for each in letters]
        sample = next((each["event_id"] for each in letters if each["event_id"]), None)
        found.append(ShownCause(group, min(times), max(times), sample))
    return sorted(found, key=lambda each: -each.group.count)


def dead_letter(runtime: Runtime, request: Request, name: str) -> dict[str, Any]:
    """Return one dead letter with its mark; payloads are hidden from a viewer without the right to see them."""
    letter = dead_letter_named(runtime, name)
    record = read_dead_letter(runtime, letter.file, letter.row)
    found = visible_dead_letter(request, with_name(record))
    return {
        "dead_letter": found,
        "mark": Marks(runtime).mark(DeadLetter(letter.file, letter.row, record)),
        "event": plain(found["event"]),
        "request": plain(found["request"]),
        "headers": _lines(found["request_headers"]) if can_see_payloads(request) else [],
        "attempts": [plain(each) | {"started_at": each["started_at"]} for each in found["attempts"]],
    }


def _lines(headers: str | None) -> list[tuple[str, str]]:
    found: dict[str, Any] = msgspec.json.decode(headers) if headers else {}
    return [(name, str(value)) for name, value in found.items()]
