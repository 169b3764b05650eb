"""The offsets of one partition that a committed batch moved; the speed of a runner is computed from them."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from eventbridge.model.partition import Partition


class Move(NamedTuple):
    """Offsets of a partition that a committed batch moved; `is_full`: the batch took all that it was allowed to."""

    partition: Partition
    events: int
    planned_at: datetime
    committed_at: datetime
    is_full: bool
