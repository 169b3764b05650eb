"""A requested change, made through the HTTP API, the page or the command line."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class OperatorAction:
    """One call: its caller, its request (truncated, without payloads), and the response.

    It is recorded before it is carried out. `status`: the HTTP status, or the exit code of a command; None: a form of
    the page, or a call that ended without a response.
    """

    action_id: int
    at: datetime
    by: str
    call: str
    asked: str
    status: int | None
