"""What somebody asked for by the HTTP API, the page or the command line that changes something."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class OperatorAction:
    """One call: who made it, what it asked for (cut, without payloads), and what response it got.

    It is noted before it is done. `status`: that of HTTP, of a command its exit code; None: a form of the page, or a
    call that ended without a response.
    """

    action_id: int
    at: datetime
    by: str
    call: str
    asked: str
    status: int | None
