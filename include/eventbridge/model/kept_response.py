"""The stored response of the API to a call with an idempotency key, so that the same call gets the same response."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class KeptResponse:
    """A response by the caller's token and key; `call_hash` is the hash of the call, including its content.

    `status` is the HTTP status, `body` is JSON text, `made_at` is aware.
    """

    caller: str
    key: str
    call_hash: str
    status: int
    body: str
    made_at: datetime
