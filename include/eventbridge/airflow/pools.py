"""Lists, creates and resizes the Airflow pools that pushes run in, through Airflow's REST API.

A task has no other access to pools. The first task of a run creates missing pools. It uses the connection
`eventbridge_airflow`, which has the host and port, and the login and password of an account that may read, create and
edit pools. `route` uses only pools that are known to exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from eventbridge.airflow.airflow_api import AirflowApi, AirflowConflict
from eventbridge.airflow.names import UNPLANNED_POOL
from eventbridge.ledger import Ledger
from eventbridge.model.chunk import REPLAY_LANE_POOL, SLOW_LANE_POOL
from eventbridge.policy.chunking import PoolSlots
from eventbridge.rules import RuleSet

#: The pools that every installation gets, with their initial slots. A later change by an operator is never undone. A
#: batch may hand out two chunks for each free slot. With these sizes, the pools high, medium and low can take 80
#: chunks, more than the default of EVENTBRIDGE_BATCH_MAX_CHUNKS (64).
SHARED_POOLS: Mapping[str, int] = {
    "eventbridge.high": 16,
    "eventbridge.medium": 16,
    "eventbridge.low": 8,
    UNPLANNED_POOL: 4,
    SLOW_LANE_POOL: 8,
    REPLAY_LANE_POOL: 4,
}

#: The number of slots in a pool that a rule names without giving a size.
NAMED_POOL_SLOTS = 8

_UNLIMITED = 1_000_000
_PAGE = 100


def wanted_pools(rules: RuleSet) -> dict[str, int]:
    """Return every pool that pushes of these rules may run in, with its initial slots."""
    own = {name: NAMED_POOL_SLOTS if slots is None else slots for name, slots in rules.pools().items()}
    return {**SHARED_POOLS, **own}


def apply_slots(ledger: Ledger, airflow: AirflowPools, rules: RuleSet) -> dict[str, PoolSlots]:
    """Create the pools that rules need, resize those whose slots in the rule files have changed, and return all pools.

    A size that an operator set stays until the slots in the rule file differ from those that were applied last. If a
    pool existed before a rule file gave it slots, its size counts as set by an operator.
    """
    pools = airflow.ensure(wanted_pools(rules))
    applied = ledger.pools.applied_slots()
    for name, slots in rules.pools().items():
        if slots is None:
            continue
        before = applied.get(name)
        if before is not None and before.slots != slots:
            # If the process dies before the change is recorded, the next call resizes the pool again.
            pools[name] = airflow.resize(name, slots)
        if before is None or (before.slots, before.seen_slots) != (slots, pools[name].slots):
            ledger.pools.record_slots(name, slots, pools[name].slots)
    return pools


class AirflowPools(AirflowApi):
    """A client of Airflow's REST API for pools; the caller closes it."""

    needs = "read, create and edit pools"

    def ensure(self, wanted: Mapping[str, int]) -> dict[str, PoolSlots]:
        """Create the missing pools and return all pools. Existing pools are not changed.

        Raises AirflowError if the API cannot be reached or refuses the login, or if a pool cannot be created.
        """
        pools = self.pools()
        for name in sorted(set(wanted) - set(pools)):
            pools[name] = self._make(name, wanted[name])
        return pools

    def resize(self, name: str, slots: int) -> PoolSlots:
        """Set a pool's slots and return the pool."""
        mask = {"update_mask": ["slots"]}
        body = {"pool": name, "slots": slots, "include_deferred": False}
        return _slots(self.call("PATCH", f"/api/v2/pools/{quote(name, safe='')}", params=mask, json=body))

    def pools(self) -> dict[str, PoolSlots]:
        """Return every pool's slots and free slots. A pool without a limit counts as one with a million slots."""
        return {pool["name"]: _slots(pool) for pool in self._pages()}

    def _pages(self) -> Iterator[dict[str, Any]]:
        offset = 0
        while True:
            page = self.call("GET", "/api/v2/pools", params={"limit": _PAGE, "offset": offset})
            yield from page["pools"]
            offset += _PAGE
            if offset >= page["total_entries"]:
                return

    def _make(self, name: str, slots: int) -> PoolSlots:
        body = {"name": name, "slots": slots, "description": "Created by EventBridge", "include_deferred": False}
        try:
            return _slots(self.call("POST", "/api/v2/pools", json=body))
        except AirflowConflict:  # it was created in the meantime, usually by the first task of another run
            return _slots(self.call("GET", f"/api/v2/pools/{quote(name, safe='')}"))


def _slots(pool: Mapping[str, Any]) -> PoolSlots:
    slots, free = pool["slots"], pool["open_slots"]
    if slots < 0:
        return PoolSlots(_UNLIMITED, _UNLIMITED)
    return PoolSlots(slots, max(0, free))
