"""Tries a pattern on an event that somebody gives: what each condition says, and what each target would be sent."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from eventbridge.errors import EventBridgeError, EventError, PatternError, UserError
from eventbridge.event.cloudevent import parse_event
from eventbridge.event.json_document import parse_document
from eventbridge.match.explain import Checked, check_each
from eventbridge.pattern import parse_pattern
from eventbridge.stages.operate.find import find_rule
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.transform import Scope, compile_transform

_NO_SQL = "Only Spark evaluates the form SQL."


@dataclass(frozen=True)
class Rendered:
    """What a target would be sent of an event; `trouble` says why it cannot be told."""

    target: str
    payload: str = ""
    content_type: str = ""
    trouble: str = ""


@dataclass(frozen=True)
class PatternTried:
    """What a pattern says to an event, and what each target of its rule would be sent.

    `where`: the condition in SQL that only Spark evaluates, so that it is still open; None: the rule has none.
    """

    matched: bool
    conditions: tuple[Checked, ...]
    payloads: tuple[Rendered, ...]
    where: str | None = None


def try_pattern(work: Runtime, rule: str, pattern: str, body: bytes) -> PatternTried:
    """Return what a pattern, JSON in place of that of a rule of today, says to an event; nothing is sent or kept.

    `pattern` "": the rule's own. Raises NotFoundError, EventError for what is not an event, UserError for what is not
    a pattern.
    """
    found = find_rule(work.rule_set(), rule)
    try:
        event = parse_event(body, max_bytes=work.settings.event_max_bytes)
        document = parse_document(body)
    except EventError as error:
        raise EventError(f"This is not an event: {error}") from None
    try:
        parsed = parse_pattern(pattern.encode("utf-8", "surrogatepass") if pattern.strip() else found.pattern)
    except (PatternError, ValueError) as error:
        raise UserError(f"This is not a pattern: {error}") from None
    checked = tuple(check_each(parsed, document))
    payloads = []
    for name, target in found.targets.items():
        if target.transform.form == "SQL":
            payloads.append(Rendered(name, trouble=_NO_SQL))
            continue
        scope = Scope(found.name, found.bus, name, str(uuid.uuid4()), work.clock())
        try:
            made = compile_transform(target.transform, content_mode=target.content_mode).render(event, scope)
        except EventBridgeError as error:
            payloads.append(Rendered(name, trouble=str(error)))
            continue
        payloads.append(Rendered(name, made.payload.decode("utf-8", "replace"), made.content_type))
    return PatternTried(all(each.met for each in checked), checked, tuple(payloads), found.where)
