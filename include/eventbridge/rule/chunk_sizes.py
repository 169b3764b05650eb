"""How large the chunks of a target may be: what its type says, unless the settings say it for all."""

from __future__ import annotations

from dataclasses import dataclass

from eventbridge.rule.model import Target
from eventbridge.rule.types import SMALL_CHUNK, TARGET_TYPES, ChunkSize


@dataclass(frozen=True)
class ChunkSizes:
    """The sizes of chunks in one installation; `deliveries` and `size` are the settings', None: as the type says."""

    deliveries: int | None = None
    size: int | None = None

    def of(self, target: Target | None) -> ChunkSize:
        """Return how large chunks of a target may be; None: of one that no rule names any more."""
        return self._set(SMALL_CHUNK if target is None else TARGET_TYPES.get(target.type).chunk_size_of(target))

    @property
    def small(self) -> ChunkSize:
        """Return how much waits together, and how much a target gets that is not well: what any target can take."""
        given = self._set(SMALL_CHUNK)
        return ChunkSize(min(given.deliveries, SMALL_CHUNK.deliveries), min(given.size, SMALL_CHUNK.size))

    def _set(self, size: ChunkSize) -> ChunkSize:
        return ChunkSize(self.deliveries or size.deliveries, self.size or size.size)
