"""What one committed batch moved of one queue: by it the speed of a runner is measured."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from eventbridge.model.queue import Queue


class Move(NamedTuple):
    """Offsets that a committed batch moved of a queue; `is_full`: the batch took all that it was allowed."""

    queue: Queue
    events: int
    planned_at: datetime
    committed_at: datetime
    is_full: bool
