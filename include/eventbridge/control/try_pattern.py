"""Tests a pattern and a transform on an event: returns the result of each condition, and each target's request."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from eventbridge.bounded_call import call_bounded
from eventbridge.errors import EventBridgeError, EventError, UserError
from eventbridge.event.cloudevent import Event, parse_event
from eventbridge.event.json_document import parse_document
from eventbridge.event.trace_context import trace_headers
from eventbridge.matching.pattern import parse_pattern
from eventbridge.matching.reference import CheckedCondition, check_each
from eventbridge.rules.bounds import MAX_SECONDS
from eventbridge.rules.find import find_rule, find_target
from eventbridge.rules.model import Rule, Transform
from eventbridge.rules.sent import read_sent_pattern, read_sent_transform
from eventbridge.targets.http.fields import HttpFields
from eventbridge.transform import Scope, compile_transform

if TYPE_CHECKING:  # the process that tests the pattern needs neither the ledger nor the store
    from eventbridge.runtime.runtime import Runtime

#: The maximum total length of the results for all conditions. There is a limit because each result lists the values at
#: the path of its condition, and many conditions may have the same path.
MAX_CHARACTERS: Final = 8 << 20

_NO_SQL = "Only Spark evaluates the SQL form."


@dataclass(frozen=True)
class Rendered:
    """The request that a target would get for an event. `error` is why the request is unknown, or "".

    `call` is the method and the URL of a target of type http, or "". `headers` have neither the credentials nor the
    signature, which a target adds when it sends.
    """

    target: str
    payload: str = ""
    content_type: str = ""
    error: str = ""
    call: str = ""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class PatternTried:
    """The result of a pattern for an event, and the request for each target of its rule.

    `where` is the rule's SQL condition, or None. Only Spark evaluates it, so its result is unknown.
    """

    matched: bool
    conditions: tuple[CheckedCondition, ...]
    payloads: tuple[Rendered, ...]
    where: str | None = None


def try_pattern(
    runtime: Runtime, rule: str, pattern: str, body: bytes, *, target: str = "", transform: str = ""
) -> PatternTried:
    """Return the result of a pattern, given as JSON or YAML, in place of the pattern of a rule. Nothing is sent.

    If `pattern` is empty, the rule's own pattern is used; if `rule` is empty, the pattern is tested without a rule, and
    the result has no requests. If `transform`, as JSON or YAML, is not empty, it takes the place of that of the rule's
    target `target`. Raises NotFoundError for an unknown rule or target, and EventError for an invalid event. Raises
    UserError if the pattern or the transform is invalid or too large, if they take too much time, if the result has
    more than MAX_CHARACTERS characters, or if both `rule` and `pattern` are empty. Raises Cancelled once the caller has
    disconnected.
    """
    if not rule and not pattern.strip():
        raise UserError("give a rule, a pattern, or both")
    found = find_rule(runtime.rule_set(), rule) if rule else None
    if transform.strip():
        find_target(runtime.rule_set(), rule, target)
    remedy = "Send a smaller pattern, transform or event"
    how = (found, pattern, body, runtime.settings.event_max_size, runtime.clock(), target, transform)
    return call_bounded(_try_pattern, *how, seconds=MAX_SECONDS, remedy=remedy)


def _try_pattern(
    found: Rule | None, pattern: str, body: bytes, max_bytes: int, now: datetime, target: str, transform: str
) -> PatternTried:
    try:
        event = parse_event(body, max_bytes=max_bytes)
        document = parse_document(body)
    except EventError as error:
        raise EventError(f"This is not an event: {error}") from None
    try:
        parsed = parse_pattern(found.pattern) if found and not pattern.strip() else read_sent_pattern(pattern)
    except ValueError as error:
        raise UserError(f"This is not a pattern: {error}") from None
    changed = {target: read_sent_transform(transform)} if transform.strip() else {}
    checked = tuple(check_each(parsed, document))
    if _characters(checked) > MAX_CHARACTERS:
        raise UserError(
            f"the result has more than {MAX_CHARACTERS:,} characters: many conditions read many or long values. "
            "Send a part of the pattern, or a smaller event"
        )
    names = sorted(found.targets, key=lambda name: name != target) if found else ()  # the changed one first
    rendered = tuple(_rendered(found, name, event, now, changed.get(name)) for name in names) if found else ()
    return PatternTried(all(each.met for each in checked), checked, rendered, found.where if found else None)


def _rendered(rule: Rule, name: str, event: Event, now: datetime, changed: Transform | None) -> Rendered:
    target = rule.targets[name]
    transform = target.transform if changed is None else changed
    if transform.form == "SQL":
        return Rendered(name, error=_NO_SQL)
    scope = Scope(rule.name, rule.bus, name, str(uuid.uuid4()), now)
    try:
        made = compile_transform(transform, content_mode=target.content_mode).render(event, scope)
    except EventBridgeError as error:
        return Rendered(name, error=str(error))
    headers = {**(made.headers or {}), **trace_headers(event.document)}
    call = ""
    if isinstance(target, HttpFields):
        call = f"{target.method} {target.url or f'the URL of the connection {target.connection}'}"
        headers = {**target.headers, **headers}
    content_type = made.content_type
    return Rendered(name, made.payload.decode("utf-8", "replace"), content_type, "", call, tuple(headers.items()))


def _characters(checked: Iterable[CheckedCondition]) -> int:
    found = (each.finding for each in checked)
    return sum(len(each.path) + len(each.condition) + len(each.message) + sum(map(len, each.values)) for each in found)
