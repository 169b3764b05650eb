"""Records the actions of operators before they are carried out, and lists the recorded ones.

Actions come from the API, the page, the command line and the forms of Airflow's DAGs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eventbridge.event.json_document import write_document
from eventbridge.model.api import OperatorAction
from eventbridge.model.cursor import read_number_cursor, write_name_cursor
from eventbridge.runtime.runtime import Runtime

#: Arguments that are not recorded: payloads, and the key that proves the origin of a form.
_LEFT_OUT = frozenset(("event", "body", "key"))


@dataclass(frozen=True)
class ActionPage:
    """A page of actions, newest first. `cursor` leads to the next page, and is None on the last page."""

    actions: tuple[OperatorAction, ...]
    cursor: str | None


def note_action(runtime: Runtime, by: str, call: str, arguments: Mapping[str, Any]) -> int:
    """Record an action, without payloads, and return its number. If this fails, the action must not be carried out."""
    recorded = {name: value for name, value in arguments.items() if name not in _LEFT_OUT}
    return runtime.ledger.actions.record(by, call, write_document(recorded) if recorded else "")


def action_page(runtime: Runtime, limit: int, after: str | None = None) -> ActionPage:
    """Return a page of at most `limit` actions, beginning with the newest or after a cursor.

    Raises UserError for an invalid cursor.
    """
    before = read_number_cursor(after) if after else None
    found = runtime.ledger.actions.find(limit + 1, before)
    cursor = write_name_cursor(str(found[limit - 1].action_id)) if len(found) > limit else None
    return ActionPage(tuple(found[:limit]), cursor)
