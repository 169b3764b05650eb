"""The quotas of an owner: a team that owns buses and rules."""

from __future__ import annotations

from eventbridge.rules.frozen import FrozenModel


class Owner(FrozenModel):
    """The quotas of one owner; None: unlimited.

    `published_per_second`: events that the API accepts for its buses. `pending_max`: the maximum of pending deliveries
    of its rules; beyond it their shares of batches are deferred. `stored_bytes`: ingestion of its buses stops at this
    size in the store.
    """

    published_per_second: float | None = None
    pending_max: int | None = None
    stored_bytes: int | None = None
