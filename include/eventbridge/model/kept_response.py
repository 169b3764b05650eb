"""What the API responded to a call with an idempotency key, kept so that the same call gets the same response."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class KeptResponse:
    """A response by the caller's token and key; `call_hash` is of what was called, content included.

    `status` is that of HTTP, `body` JSON text, `made_at` aware.
    """

    caller: str
    key: str
    call_hash: str
    status: int
    body: str
    made_at: datetime
