"""How much the store holds, as the ledger counts it: by batch, and in sum by runner, bus and area."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from eventbridge.model.retention import Kept

#: What retention removes at a time; `other` is all that is counted with no batch: manifests, rule sets, indexes, what
#: attempts left that died, and what was there before anybody counted.
Area = Literal["deliveries", "archive", "dead_letters", "other"]

#: The area that goes with what a batch loses.
AREAS: Mapping[Kept, Area] = {"all": "deliveries", "archive": "archive", "dead_letters": "dead_letters"}


@dataclass(frozen=True)
class BatchSize:
    """The bytes of what a batch left in the store, by area."""

    deliveries: int
    archive: int
    dead_letters: int


@dataclass(frozen=True)
class StoredBytes:
    """The bytes that batches of a runner and bus left in an area, less what retention took; both empty for `other`."""

    runner: str
    bus: str
    area: Area
    size: int


@dataclass(frozen=True)
class StoreQuota:
    """How much of its quota the store takes, in bytes; `counted_at`: when everything was measured last."""

    held: int
    quota: int
    resume: int
    counted_at: datetime | None


@dataclass(frozen=True)
class StoreCount:
    """What the store holds by area, and when all of it was counted last; None: never, so that nothing is known."""

    sizes: tuple[StoredBytes, ...]
    counted_at: datetime | None

    @property
    def total(self) -> int:
        """All bytes; never less than none."""
        return max(0, sum(each.size for each in self.sizes))
