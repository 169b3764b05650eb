"""What retention has left of a batch, and what still needs it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

#: What of a batch is kept, from everything to nothing: each step lacks what the step before it names.
#: `all`: deliveries, outcomes and settlements too. `archive`: the landed events of a normal batch. `dead_letters`.
#: `manifest`: the manifest, records of repairs, the ledger's row. `nothing`: the row goes as soon as the files have.
Kept = Literal["all", "archive", "dead_letters", "manifest", "nothing"]

STEPS: Final[tuple[Kept, ...]] = ("all", "archive", "dead_letters", "manifest", "nothing")


def is_kept(kept: Kept, what: Kept) -> bool:
    """Return whether a batch of which `kept` is left still has `what`, such as its `dead_letters`."""
    return STEPS.index(kept) <= STEPS.index(what)


@dataclass(frozen=True)
class Need:
    """Why a batch must not lose `what`, however old it is."""

    what: Kept
    why: str


@dataclass(frozen=True)
class BatchGroup:
    """Batches of one runner and bus ("": of none) of which the same is kept."""

    runner: str
    bus: str


@dataclass(frozen=True)
class BatchPlace:
    """Where a batch stands among others in order of planning."""

    planned_at: datetime
    batch_id: str


#: The times that a day of the store is listed for files that nobody names: `lost` once their writers cannot come back,
#: `expired` once retention has taken what was named.
SweepName = Literal["lost", "expired"]
