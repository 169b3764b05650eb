"""What one committed batch moved of one partition: by it the speed of a runner is measured."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from eventbridge.model.partition import Partition


class Move(NamedTuple):
    """Offsets that a committed batch moved of a partition; `is_full`: the batch took all that it was allowed."""

    partition: Partition
    events: int
    planned_at: datetime
    committed_at: datetime
    is_full: bool
