"""What the rule files allow an owner: the team that buses and rules name as theirs."""

from __future__ import annotations

from eventbridge.rule.frozen import FrozenModel


class Owner(FrozenModel):
    """The quotas of one owner; None: there is none.

    `published_per_second`: events that the API takes for its buses. `pending_max`: deliveries of its rules that may
    wait; beyond it their shares of batches are deferred. `stored_bytes`: with so much of its buses in the store they
    are not taken from.
    """

    published_per_second: float | None = None
    pending_max: int | None = None
    stored_bytes: int | None = None
