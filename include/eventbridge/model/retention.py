"""What retention has kept of a batch, and why it is still needed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

#: What is kept of a batch, from everything to nothing: each step lacks the records that the step before it names.
#: `all`: deliveries, outcomes and settlements too. `archive`: the landed events of a normal batch. `dead_letters`.
#: `manifest`: the manifest, records of repairs, the ledger's row. `nothing`: the row is deleted after the files.
Kept = Literal["all", "archive", "dead_letters", "manifest", "nothing"]

STEPS: Final[tuple[Kept, ...]] = ("all", "archive", "dead_letters", "manifest", "nothing")


def is_kept(kept: Kept, what: Kept) -> bool:
    """Return whether a batch of which `kept` is kept still has `what`, such as its `dead_letters`."""
    return STEPS.index(kept) <= STEPS.index(what)


@dataclass(frozen=True)
class Need:
    """Why a batch must not lose `what`, however old it is."""

    what: Kept
    why: str


@dataclass(frozen=True)
class BatchGroup:
    """Batches of one runner and bus ("": of none) of which the same records are kept."""

    runner: str
    bus: str


@dataclass(frozen=True)
class BatchPlace:
    """The place of a batch among others in order of planning."""

    planned_at: datetime
    batch_id: str


#: The sweeps that list a day of the store for files that nothing names: `lost` once their writers must have ended,
#: `expired` once retention has removed the named files.
SweepName = Literal["lost", "expired"]
