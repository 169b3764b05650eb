"""Who asked for what by the HTTP API, the page and the command line: noted before it is done, told the newest first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eventbridge.event.json_document import write_document
from eventbridge.model.cursor import read_number_cursor, write_name_cursor
from eventbridge.model.operator_action import OperatorAction
from eventbridge.stages.runtime.runtime import Runtime

#: Members that are payloads, or prove where a form comes from.
_LEFT_OUT = frozenset(("event", "body", "key"))


@dataclass(frozen=True)
class ActionPage:
    """Some actions, the newest first, and the cursor behind which there are more; None: these are the last."""

    actions: tuple[OperatorAction, ...]
    cursor: str | None


def note_action(runtime: Runtime, by: str, call: str, asked: Mapping[str, Any]) -> int:
    """Note what somebody asks for, without payloads, and return its number; raises LedgerError: then do not do it."""
    told = {name: value for name, value in asked.items() if name not in _LEFT_OUT}
    return runtime.ledger.note_action(by, call, write_document(told) if told else "")


def action_page(runtime: Runtime, limit: int, after: str | None = None) -> ActionPage:
    """Return at most so many actions from behind a cursor on; raises UserError for an invalid cursor."""
    before = read_number_cursor(after) if after else None
    found = runtime.ledger.actions(limit + 1, before)
    cursor = write_name_cursor(str(found[limit - 1].action_id)) if len(found) > limit else None
    return ActionPage(tuple(found[:limit]), cursor)
