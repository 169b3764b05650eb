"""Leads from the text in the search box to a page: that of an id, of a name, or the events with some attributes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import quote, urlencode

from eventbridge.dead_letters.redrives import find_redrive
from eventbridge.errors import NotFoundError
from eventbridge.repair.audit import find_batch
from eventbridge.replay.account import find_replay
from eventbridge.runtime.runtime import Runtime

#: The attributes that can be searched for, as in `type:order.placed`; `bus` and times are those of the page of events.
_TERM: Final = re.compile(r"(bus|type|source|subject):(\S+)")
#: The form of the beginning of an id of a batch, a replay or a redrive. Shorter text is more often the id of an event.
_BEGINNING: Final = re.compile(r"[0-9a-fA-F-]{8,36}")
_MAX_CHARACTERS: Final = 1_000


def page_for(runtime: Runtime, text: str, period: dict[str, str]) -> str:
    """Return the path, under the root of the page, of what `text` names; an event is assumed if nothing else fits."""
    text = text.strip()[:_MAX_CHARACTERS]
    terms = dict(_TERM.findall(text))
    if terms or not text:
        return f"/events?{urlencode(terms | period)}"
    rules = runtime.rule_set().rules
    rule, _, target = (part.strip() for part in text.partition("/"))
    if rule in rules and not target:
        return f"/rules/{quote(rule, safe='')}"
    if rule in rules and target in rules[rule].destinations:
        return f"/targets/{quote(rule, safe='')}/{quote(target, safe='')}"
    if runtime.owners is None and _BEGINNING.fullmatch(text):  # an id of a batch concerns every owner
        kinds: tuple[tuple[str, Callable[[], str]], ...] = (
            ("/batches/", lambda: find_batch(runtime, text)),
            ("/replays/", lambda: find_replay(runtime, text).replay_id),
            ("/redrives#", lambda: find_redrive(runtime, text).redrive_id),
        )
        for path, find in kinds:
            try:
                return f"{path}{find()}"
            except NotFoundError:
                continue
    return f"/event?{urlencode({'id': text})}"
