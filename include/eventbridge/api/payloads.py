"""Hides payloads from callers without the right to see them: events, requests, responses, and text that quotes them.

A condition on payloads needs the same right, because the number of matches reveals their content.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

from fastapi import Request

from eventbridge.api.refusal import CallRefused
from eventbridge.control.actions import ActionPage
from eventbridge.dead_letters.reader import DeadLetterGroup, dead_letter_groups
from eventbridge.dead_letters.selection import QUOTING_REASONS
from eventbridge.model.quality import Measure, QualityRecord
from eventbridge.model.rule_state import EXPECTATION_HOLD, RuleOnHold
from eventbridge.model.why import EventResult, Step, Why
from eventbridge.policy.ordering import delivery_on_hold_at
from eventbridge.policy.quality import VALUE_MEASURES

NEEDED = "the scope payloads or, in Airflow, the permission to read task logs"
#: Shown in place of a payload.
HIDDEN = f"hidden: needs {NEEDED}"

#: Fields of queries, bodies and forms that hold a condition on payloads. `subject` counts as one, because no list shows
#: the subject.
CONDITIONS: Final = ("sql", "pattern", "condition", "subject")
#: The routes that test a pattern only on an event that the call contains.
OWN_EVENT_ROUTES: Final = frozenset({"/v1/rules/{rule}/test", "/page/rules/{name}/test"})

_DEAD_LETTER_PAYLOADS = ("event", "request", "request_headers")
#: Finds recorded actions with a condition on payloads, or with a string to search for in errors.
_PAYLOAD_CONDITION = re.compile(r'"(?:sql|pattern|error)"|--(?:sql|pattern|error)\b')


def set_payloads_right(request: Request, shown: bool) -> None:
    """Record whether the caller of a request may see payloads, and check the conditions in its query.

    Raises CallRefused for a condition on payloads if the caller may not see them.
    """
    request.state.payloads = shown
    check_conditions(request, request.query_params)


def can_see_payloads(request: Request) -> bool:
    """Return whether the caller of a request may see payloads."""
    return bool(getattr(request.state, "payloads", False))


def require_payloads(request: Request) -> None:
    """Raise CallRefused if the caller may not see payloads."""
    if not can_see_payloads(request):
        raise CallRefused(
            HTTPStatus.FORBIDDEN, f"An archived event is a payload. You need {NEEDED}", code="payloads_required"
        )


def check_conditions(request: Request, conditions: Mapping[str, Any]) -> None:
    """Raise CallRefused if the caller may not see payloads and sends a condition on them."""
    if can_see_payloads(request) or getattr(request.scope.get("route"), "path", "") in OWN_EVENT_ROUTES:
        return
    for name in CONDITIONS:
        if conditions.get(name):
            detail = f"A condition on payloads reveals their content: {name} needs {NEEDED}"
            raise CallRefused(HTTPStatus.FORBIDDEN, f"{detail}. Nothing was changed", code="payloads_required")


def visible_response_head(request: Request, head: str) -> str:
    """Return the beginning of a target's response, hidden if the caller may not see payloads; "" stays ""."""
    return head if can_see_payloads(request) or not head else HIDDEN


def visible_dead_letter(request: Request, dead_letter: dict[str, Any]) -> dict[str, Any]:
    """Return a dead letter, with or without its long columns, and hide what the caller may not see.

    Without the right to see payloads, the event, request, responses, and details that may quote the event are hidden.
    """
    if can_see_payloads(request):
        return dead_letter
    hidden = {name: HIDDEN for name in _DEAD_LETTER_PAYLOADS if dead_letter.get(name) is not None}
    quotes = dead_letter["reason"] in QUOTING_REASONS
    if quotes and dead_letter["detail"]:
        hidden["detail"] = HIDDEN
    if "attempts" not in dead_letter:
        return dead_letter | hidden
    attempts = [
        each | {"response_head": each["response_head"] and HIDDEN, "error": HIDDEN if quotes else each["error"]}
        for each in dead_letter["attempts"]
    ]
    return dead_letter | hidden | {"attempts": attempts}


def visible_groups(dead_letters: Iterable[Mapping[str, Any]]) -> list[DeadLetterGroup]:
    """Return the groups of dead letters that `visible_dead_letter` returned; hidden text does not separate groups."""
    return dead_letter_groups(each if each["detail"] != HIDDEN else {**each, "detail": None} for each in dead_letters)


def visible_error(request: Request, reason: str | None, error: str | None) -> str:
    """Return the error of an attempt, hidden if it may quote the event and the caller may not see that; "" for none."""
    error = error or ""
    return HIDDEN if error and reason in QUOTING_REASONS and not can_see_payloads(request) else error


def visible_trace(request: Request, trace: Why) -> Why:
    """Return the trace of an event, without field values and responses if the caller may not see payloads."""
    return trace if can_see_payloads(request) else replace(trace, events=tuple(map(_event_hidden, trace.events)))


def _event_hidden(event: EventResult) -> EventResult:
    rules = tuple(
        replace(rule, conditions=tuple(replace(each, values=(), message=HIDDEN) for each in rule.conditions))
        for rule in event.rules
    )
    malformed = event.status == "malformed"
    failed = {each.delivery_id for each in event.steps if each.reason in QUOTING_REASONS}

    def visible_step(step: Step) -> Step:
        quotes = step.reason in QUOTING_REASONS or (step.what == "attempt" and step.delivery_id in failed)
        return replace(
            step,
            reason=HIDDEN if malformed and step.what == "landed" and step.reason else step.reason,
            detail=HIDDEN if quotes and step.detail else step.detail,
            response_head=step.response_head and HIDDEN,
        )

    reason = HIDDEN if malformed and event.reason else event.reason
    return replace(event, rules=rules, steps=tuple(map(visible_step, event.steps)), reason=reason)


def visible_rule_on_hold(request: Request, rule_on_hold: RuleOnHold) -> RuleOnHold:
    """Return a rule that is on hold, without a reason that the caller may not see.

    Spark's error may quote an event, and a failed expectation on a field's value names a value.
    """
    if can_see_payloads(request) or delivery_on_hold_at(rule_on_hold.reason) is not None:
        return rule_on_hold
    if not rule_on_hold.reason.startswith(EXPECTATION_HOLD):
        return replace(rule_on_hold, reason=HIDDEN)
    names_value = any(each in rule_on_hold.reason for each in VALUE_MEASURES)
    return replace(rule_on_hold, reason=f"{EXPECTATION_HOLD}: {HIDDEN}") if names_value else rule_on_hold


def visible_quality(request: Request, record: QualityRecord) -> QualityRecord | dict[str, Any]:
    """Return the quality check of an hour, without values of events if the caller may not see payloads."""
    if can_see_payloads(request):
        return record

    def visible_measures(measures: Iterable[Measure]) -> list[dict[str, Any]]:
        hidden = {"value": None, "note": HIDDEN}
        return [vars(each) | (hidden if each.name in VALUE_MEASURES else {}) for each in measures]

    return vars(record) | {"measures": visible_measures(record.measures), "failures": visible_measures(record.failures)}


def visible_selection(request: Request, document: dict[str, Any]) -> dict[str, Any]:
    """Return a replay or redrive; its conditions, which may quote payloads, are hidden unless payloads may be seen."""
    if can_see_payloads(request):
        return document
    selection: dict[str, Any] = dict(document["selection"])
    names = CONDITIONS if selection.get("payloads") is False else (*CONDITIONS, "error")
    return document | {"selection": selection | {name: HIDDEN for name in names if name in selection}}


def visible_actions(request: Request, page: ActionPage) -> ActionPage:
    """Return recorded actions; arguments with conditions on payloads are hidden unless payloads may be seen."""
    if can_see_payloads(request):
        return page
    hidden = (replace(each, asked=HIDDEN) if _PAYLOAD_CONDITION.search(each.asked) else each for each in page.actions)
    return replace(page, actions=tuple(hidden))
