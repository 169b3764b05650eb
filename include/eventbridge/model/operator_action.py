"""What somebody asked for by the HTTP API or the page that changes something."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class OperatorAction:
    """One call: who made it, what it asked for (cut, without payloads), and what it was answered.

    It is noted before it is done. `status` None: a form of the page, or a call that ended without an answer.
    """

    action_id: int
    at: datetime
    by: str
    call: str
    asked: str
    status: int | None
