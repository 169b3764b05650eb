"""Describes recorded actions in words: what was requested, on what, by whom, by which way, and with which result."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

from eventbridge.model.api import OperatorAction

#: The beginnings of the paths below which the API and the page serve their calls.
_ROOTS: Final = ("/v1/", "/page/")
#: What a call does if its path alone does not say so, by the path's first segment and the number of its segments.
_STARTS: Final = {"replay": "start replay", "replays": "start replay", "redrive": "redrive", "redrives": "redrive"}
_SINGULAR: Final = {"rules": "rule", "targets": "target", "replays": "replay", "redrives": "redrive"}
#: The fields of a request that name what it concerns, the most exact first.
_SUBJECTS: Final = ("rules", "rule", "bus", "candidate", "a", "event_id")
_LONGEST: Final = 300


@dataclass(frozen=True)
class AuditLine:
    """An action in words. `what` is the act, such as `pause rule`, `on` its subject, such as a rule or `rule/target`.

    `who` is the user or token, `way` is `page`, `API`, `command` or `Airflow`. `result` is `done`, `refused`, `failed`
    or, if no result was recorded, `no result`.
    """

    action: OperatorAction
    what: str
    on: str
    who: str
    way: str
    result: str

    @property
    def request_text(self) -> str:
        """The recorded request, cut to a length that fits a table."""
        text = self.action.asked
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."

    def contains(self, words: list[str]) -> bool:
        """Return whether the action contains every word, in any case."""
        text = " ".join((self.what, self.on, self.who, self.way, self.result, self.action.call)).lower()
        return all(word.lower() in text for word in words)


def audit_line(action: OperatorAction) -> AuditLine:
    """Return an action in words; a call that is not known keeps its own."""
    asked = _object(action.asked)
    way, _, who = action.by.partition(", ")
    if not who or way not in ("page", "command", "Airflow"):
        way, who = "API", action.by
    head, _, rest = action.call.partition(" ")
    if head == "eventbridge":
        what, on = _command(asked)
    elif head == "DAG":
        what, on = rest.removeprefix("eventbridge_").replace("_", " "), _subject(asked)
    else:
        what, on = _call(head, rest, asked)
    return AuditLine(action, what or action.call, on, who, way, _result(way, action.status))


def _command(asked: dict[str, Any]) -> tuple[str, str]:
    words = asked.get("arguments")
    if not isinstance(words, list) or len(words) < 2:
        return "", ""
    noun, verb, *others = map(str, words)
    names = [each for each in others[:2] if not each.startswith("-")]
    if others and others[0].startswith("-"):
        names = []
    return f"{verb} {_SINGULAR.get(noun, noun)}", "/".join(names)


def _call(method: str, path: str, asked: dict[str, Any]) -> tuple[str, str]:
    root = next((each for each in _ROOTS if each in path), "")
    noun, *names = [unquote(each) for each in path.partition(root)[2].split("/")] if root else [""]
    if not names:
        return _STARTS.get(noun, ""), _subject(asked)
    *of, verb = names
    on, target = "/".join(of), str(asked.get("target") or "")
    if verb == "operate":
        return f"{asked.get('action', '')} {asked.get('value') or ''}".strip(), "/".join(filter(None, (on, target)))
    if verb == "try":
        return ("check target" if asked.get("do") == "check" else "send event to target"), on
    if method == "PUT":
        verb = f"set {verb}"
    elif method == "DELETE":
        verb = f"clear {verb}"
    return f"{verb} {_SINGULAR.get(noun, noun)}", on


def _subject(asked: dict[str, Any]) -> str:
    """Return what a request concerns: its rules, else its bus, with its targets."""
    first = next((asked[name] for name in _SUBJECTS if asked.get(name)), "")
    targets = asked.get("only") or asked.get("targets") or asked.get("target") or ""
    if asked.get("only"):
        return str(asked["only"])
    return "/".join(
        ", ".join(map(str, each)) if isinstance(each, list) else str(each) for each in (first, targets) if each
    )[:_LONGEST]


def _result(way: str, status: int | None) -> str:
    if status is None:
        return "no result"
    if way in ("command", "Airflow"):
        return "failed" if status else "done"
    if status < HTTPStatus.BAD_REQUEST:
        return "done"
    return "refused" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "failed"


def _object(text: str) -> dict[str, Any]:
    """Return a recorded request; an empty one if it is hidden or truncated."""
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
