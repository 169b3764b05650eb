"""Who may see payloads: events, requests, answers of targets. To others everything but them is told."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Any

from fastapi import Request

from eventbridge.api.refusal import Refused
from eventbridge.model.why import Why

NEEDED = "the scope payloads or, in Airflow, the permission to read task logs"
#: What stands for a payload.
HIDDEN = f"hidden: needs {NEEDED}"

_OF_LETTER = ("event", "request", "request_headers")


def show_payloads(request: Request, shown: bool) -> None:
    """Note whether the caller of a request may see payloads."""
    request.state.payloads = shown


def shows_payloads(request: Request) -> bool:
    """Return whether the caller of a request may see payloads."""
    return bool(getattr(request.state, "payloads", False))


def check_payloads(request: Request) -> None:
    """Raise Refused for somebody who asks for a payload and may not see it."""
    if not shows_payloads(request):
        raise Refused(HTTPStatus.FORBIDDEN, f"An event of the archive is a payload. It takes {NEEDED}")


def letter_seen(request: Request, letter: dict[str, Any]) -> dict[str, Any]:
    """Return a dead letter as the caller may see it: event, request and answers hidden or not."""
    if shows_payloads(request):
        return letter
    hidden = {name: HIDDEN for name in _OF_LETTER if letter.get(name) is not None}
    attempts = [each | {"response_head": each["response_head"] and HIDDEN} for each in letter["attempts"]]
    return letter | hidden | {"attempts": attempts}


def why_seen(request: Request, found: Why) -> Why:
    """Return what became of an event as the caller may see it: what its fields hold, and answers, hidden or not."""
    if shows_payloads(request):
        return found
    events = []
    for event in found.events:
        rules = tuple(
            replace(rule, conditions=tuple(replace(each, values=(), message=HIDDEN) for each in rule.conditions))
            for rule in event.rules
        )
        steps = tuple(replace(each, response_head=each.response_head and HIDDEN) for each in event.steps)
        events.append(replace(event, rules=rules, steps=steps))
    return replace(found, events=tuple(events))
