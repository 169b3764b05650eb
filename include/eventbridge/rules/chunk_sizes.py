"""The maximum size of a target's chunks: its type's, unless settings override it."""

from __future__ import annotations

from dataclasses import dataclass

from eventbridge.rules.model import Target
from eventbridge.rules.types import SMALL_CHUNK, TARGET_TYPES, ChunkSize


@dataclass(frozen=True)
class ChunkSizes:
    """The chunk sizes of one installation; `deliveries` and `size` come from settings, None: the type's."""

    deliveries: int | None = None
    size: int | None = None

    def of(self, target: Target | None) -> ChunkSize:
        """Return the chunk size of a target; None: a target that no rule names any more."""
        return self._set(SMALL_CHUNK if target is None else TARGET_TYPES.get(target.type).chunk_size_of(target))

    @property
    def small(self) -> ChunkSize:
        """Return the chunk size of pending deliveries and of degraded targets, which any target can take."""
        given = self._set(SMALL_CHUNK)
        return ChunkSize(min(given.deliveries, SMALL_CHUNK.deliveries), min(given.size, SMALL_CHUNK.size))

    def _set(self, size: ChunkSize) -> ChunkSize:
        return ChunkSize(self.deliveries or size.deliveries, self.size or size.size)
