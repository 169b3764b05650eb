"""What the API answered to a call with an idempotency key, kept so that the same call gets the same answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class KeptAnswer:
    """An answer by the caller's token and key; `call_hash` is of what was called, content included.

    `status` is that of HTTP, `body` JSON text, `made_at` aware.
    """

    caller: str
    key: str
    call_hash: str
    status: int
    body: str
    made_at: datetime
