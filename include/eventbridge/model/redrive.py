"""A request to deliver dead letters again, and the rows of them that a batch took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

RedriveState = Literal["running", "done", "cancelled"]


@dataclass(frozen=True)
class Redrive:
    """A request to deliver dead letters again, carried out by batches in turn.

    `run` names the requester: a second request with the same name is the same redrive. `selection` is JSON.
    `rate` is in dead letters a second, None: unlimited; no further batch is planned before `next_at`.
    """

    redrive_id: str
    run: str
    selection: Mapping[str, Any]
    started_at: datetime
    next_at: datetime
    rate: float | None = None
    retransform: bool = False
    again: bool = False  # include dead letters that were redriven before
    state: RedriveState = "running"
    ended_at: datetime | None = None


@dataclass(frozen=True)
class Redriven:
    """Rows of a dead letter file that a batch took; `turn` counts the batches that took rows of this file, from 0."""

    file: str
    turn: int
    redrive_id: str
    batch_id: str
    rows: str  # made by `eventbridge.model.rowset.encode`
    count: int
