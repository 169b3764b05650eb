"""The size of the store as counted by the ledger: by batch, and in total by runner, bus and area."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from eventbridge.model.retention import Kept

#: Areas that retention removes at a time; `other` is everything that is counted with no batch: manifests, rule sets,
#: indexes, files of attempts that died, and files from before the counting began.
Area = Literal["deliveries", "archive", "dead_letters", "other"]

#: The area that is removed with each step of `Kept`.
AREAS: Mapping[Kept, Area] = {"all": "deliveries", "archive": "archive", "dead_letters": "dead_letters"}


@dataclass(frozen=True)
class BatchSize:
    """The bytes of a batch in the store, by area."""

    deliveries: int
    archive: int
    dead_letters: int


@dataclass(frozen=True)
class StoredBytes:
    """The bytes of a runner and bus in an area, less those that retention removed; both names are "" for `other`."""

    runner: str
    bus: str
    area: Area
    size: int


@dataclass(frozen=True)
class StoreQuota:
    """The used bytes of the store, its quota, and the used bytes to resume at; `counted_at`: the last measurement."""

    held: int
    quota: int
    resume: int
    counted_at: datetime | None


@dataclass(frozen=True)
class StoreCount:
    """The size of the store by area, and when everything was last measured; None: never, so the size is unknown."""

    sizes: tuple[StoredBytes, ...]
    counted_at: datetime | None

    @property
    def total(self) -> int:
        """Return the total bytes, at least 0."""
        return max(0, sum(each.size for each in self.sizes))
