"""Publishing quotas of owners: the ledger counts for all servers; each takes a small allowance in advance."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from eventbridge.runtime.runtime import Runtime


@dataclass
class _Allowance:
    per_second: float
    events: int = 0  # allowance that is left
    refused_until: float = 0.0
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class PublishRates:
    """Counts events against the publishing quotas of owners. Use it from one event loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known: dict[str, _Allowance] = {}

    async def wait_seconds(self, owner: str, per_second: float, events: int) -> float:
        """Count the events and return 0, or return the seconds after which the owner may publish again.

        Raises LedgerError.
        """
        known = self._known.get(owner)
        if known is None or known.per_second != per_second:
            known = self._known[owner] = _Allowance(per_second)
        async with known.asking:
            if known.events < events:
                left = known.refused_until - time.monotonic()
                if left > 0:
                    return left
                missing = events - known.events
                given = await asyncio.to_thread(self._runtime.ledger.grant_publishing, owner, per_second, missing)
                if given.wait_seconds:
                    known.refused_until = time.monotonic() + given.wait_seconds
                    return given.wait_seconds
                known.events += given.events
            known.events -= events
            return 0.0
