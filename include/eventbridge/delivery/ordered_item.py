"""A delivery of an ordered target, and the shard that it belongs to, as a push knows them."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from eventbridge.delivery.outstanding import Item
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Chunk
from eventbridge.model.partition import Partition, Position
from eventbridge.rules import Target as TargetRule
from eventbridge.runtime.runtime import Runtime

_NOWHERE = Position(Partition("", "", 0), 0)


@dataclass(slots=True, eq=False)
class OrderedItem(Item):
    """A delivery with its key and place.

    `failure`: why it has no payload. `note` and `reason`: an operator's decision about it, and why it was on hold.
    """

    key: str = ""
    place: Position = _NOWHERE
    failure: str | None = None
    note: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Shard:
    """What the runs of an ordered target share; `gone` is set once the target has responded with 410."""

    runtime: Runtime
    batch: Batch
    chunk: Chunk
    spec: TargetRule
    rule: str
    number: int
    gone: threading.Event
    round_slots: threading.Semaphore  # rounds at a time, over all shards of the target

    @property
    def holder(self) -> str:
        """The unique name of the lease's holder: this claim of this chunk."""
        return f"{self.batch.batch_id}/{self.chunk.chunk_id}/{self.chunk.claim}"

    @property
    def own(self) -> set[int]:
        """The pending rows of the chunk."""
        return {piece.pending_id for piece in self.chunk.pieces if piece.pending_id is not None}
