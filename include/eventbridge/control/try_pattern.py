"""Tests a pattern on an event: returns the result of each condition, and the request for each target."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from eventbridge.bounded_call import call_bounded
from eventbridge.errors import EventBridgeError, EventError, PatternError, UserError
from eventbridge.event.cloudevent import Event, parse_event
from eventbridge.event.json_document import parse_document
from eventbridge.matching.pattern import parse_pattern
from eventbridge.matching.reference import CheckedCondition, check_each
from eventbridge.rules.bounds import MAX_SECONDS, parse_sent_pattern
from eventbridge.rules.find import find_rule
from eventbridge.rules.model import Rule
from eventbridge.transform import Scope, compile_transform

if TYPE_CHECKING:  # the process that tests the pattern needs neither the ledger nor the store
    from eventbridge.runtime.runtime import Runtime

#: The maximum total length of the results for all conditions. There is a limit because each result lists the values at
#: the path of its condition, and many conditions may have the same path.
MAX_CHARACTERS: Final = 8 << 20

_NO_SQL = "Only Spark evaluates the SQL form."


@dataclass(frozen=True)
class Rendered:
    """The request that a target would get for an event. `error` is why the request is unknown, or ""."""

    target: str
    payload: str = ""
    content_type: str = ""
    error: str = ""


@dataclass(frozen=True)
class PatternTried:
    """The result of a pattern for an event, and the request for each target of its rule.

    `where` is the rule's SQL condition, or None. Only Spark evaluates it, so its result is unknown.
    """

    matched: bool
    conditions: tuple[CheckedCondition, ...]
    payloads: tuple[Rendered, ...]
    where: str | None = None


def try_pattern(runtime: Runtime, rule: str, pattern: str, body: bytes) -> PatternTried:
    """Return the result of a pattern, given as JSON, in place of the pattern of a rule. Nothing is sent or stored.

    If `pattern` is empty, the rule's own pattern is used; if `rule` is empty, the pattern is tested without a rule, and
    the result has no requests. Raises NotFoundError for an unknown rule, and EventError for an invalid event. Raises
    UserError if the pattern is invalid or too large, if it takes too much time, if the result has more than
    MAX_CHARACTERS characters, or if both `rule` and `pattern` are empty. Raises Cancelled once the caller has
    disconnected.
    """
    if not rule and not pattern.strip():
        raise UserError("give a rule, a pattern, or both")
    found = find_rule(runtime.rule_set(), rule) if rule else None
    remedy = "Send a smaller pattern or event"
    how = (found, pattern, body, runtime.settings.event_max_size, runtime.clock())
    return call_bounded(_try_pattern, *how, seconds=MAX_SECONDS, remedy=remedy)


def _try_pattern(found: Rule | None, pattern: str, body: bytes, max_bytes: int, now: datetime) -> PatternTried:
    try:
        event = parse_event(body, max_bytes=max_bytes)
        document = parse_document(body)
    except EventError as error:
        raise EventError(f"This is not an event: {error}") from None
    try:
        parsed = parse_pattern(found.pattern) if found and not pattern.strip() else parse_sent_pattern(pattern)
    except (PatternError, ValueError) as error:
        raise UserError(f"This is not a pattern: {error}") from None
    checked = tuple(check_each(parsed, document))
    if _characters(checked) > MAX_CHARACTERS:
        raise UserError(
            f"the result has more than {MAX_CHARACTERS:,} characters: many conditions read many or long values. "
            "Send a part of the pattern, or a smaller event"
        )
    rendered = tuple(_rendered(found, name, event, now) for name in found.targets) if found else ()
    return PatternTried(all(each.met for each in checked), checked, rendered, found.where if found else None)


def _rendered(rule: Rule, name: str, event: Event, now: datetime) -> Rendered:
    target = rule.targets[name]
    if target.transform.form == "SQL":
        return Rendered(name, error=_NO_SQL)
    scope = Scope(rule.name, rule.bus, name, str(uuid.uuid4()), now)
    try:
        made = compile_transform(target.transform, content_mode=target.content_mode).render(event, scope)
    except EventBridgeError as error:
        return Rendered(name, error=str(error))
    return Rendered(name, made.payload.decode("utf-8", "replace"), made.content_type)


def _characters(checked: Iterable[CheckedCondition]) -> int:
    found = (each.finding for each in checked)
    return sum(len(each.path) + len(each.condition) + len(each.message) + sum(map(len, each.values)) for each in found)
