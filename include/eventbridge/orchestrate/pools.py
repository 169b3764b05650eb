"""The Airflow pools that pushes run in, seen and made through Airflow's REST API: a task cannot see them otherwise.

`listen` makes sure of them with the connection `eventbridge_airflow` (host, port, login, password of an account that
may read and create pools); a pool that is not confirmed is not named by route.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from eventbridge.decision.chunking import PoolSlots
from eventbridge.ledger import Ledger
from eventbridge.model.lane import REPLAY_LANE_POOL, SLOW_LANE_POOL
from eventbridge.orchestrate.airflow_api import AirflowApi, AirflowConflict
from eventbridge.orchestrate.names import UNPLANNED_POOL
from eventbridge.rule import RuleSet

#: Pools that are always there, with the slots they are made with. An operator's later change is never undone.
#: Twice the slots are handed out per batch, so the shared pools together may fill `batch.max_chunks` (64).
SHARED_POOLS: Mapping[str, int] = {
    "eventbridge.high": 16,
    "eventbridge.medium": 16,
    "eventbridge.low": 8,
    UNPLANNED_POOL: 4,
    SLOW_LANE_POOL: 8,
    REPLAY_LANE_POOL: 4,
}

#: Slots of a pool that a rule names and nobody gave a size.
NAMED_POOL_SLOTS = 8

_UNLIMITED = 1_000_000
_PAGE = 100


def wanted_pools(rules: RuleSet) -> dict[str, int]:
    """Return every pool that pushes of these rules may run in, and the slots it is to be made with if it is absent."""
    own = {name: NAMED_POOL_SLOTS if slots is None else slots for name, slots in rules.pools().items()}
    return {**SHARED_POOLS, **own}


def apply_slots(ledger: Ledger, airflow: AirflowPools, rules: RuleSet) -> dict[str, PoolSlots]:
    """Make the pools that rules want, resize those whose rule file changed since, and return all as they stand then.

    What an operator set stays until the file's own value is another than the one that was applied last.
    A pool that was there before its file gave it slots is the operator's.
    """
    pools = airflow.ensure(wanted_pools(rules))
    applied = ledger.applied_slots()
    for name, slots in rules.pools().items():
        if slots is None:
            continue
        before = applied.get(name)
        if before is not None and before.slots != slots:
            pools[name] = airflow.resize(name, slots)  # who dies before it is noted does it again
        if before is None or (before.slots, before.seen_slots) != (slots, pools[name].slots):
            ledger.note_slots(name, slots, pools[name].slots)
    return pools


class AirflowPools(AirflowApi):
    """A client of Airflow's REST API for pools; closed by its opener."""

    needs = "read and create pools"

    def ensure(self, wanted: Mapping[str, int]) -> dict[str, PoolSlots]:
        """Make the wanted pools that are absent and return every pool there is; an existing one is never changed.

        Raises AirflowError where the API cannot be reached, refuses the login, or a pool cannot be made.
        """
        pools = self.pools()
        for name in sorted(set(wanted) - set(pools)):
            pools[name] = self._make(name, wanted[name])
        return pools

    def resize(self, name: str, slots: int) -> PoolSlots:
        """Give a pool other slots and return how it stands then."""
        mask = {"update_mask": ["slots"]}
        body = {"pool": name, "slots": slots, "include_deferred": False}
        return _slots(self.call("PATCH", f"/api/v2/pools/{quote(name, safe='')}", params=mask, json=body))

    def pools(self) -> dict[str, PoolSlots]:
        """Return every pool's slots and free slots; a pool without limit counts as one of a million slots."""
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
        body = {"name": name, "slots": slots, "description": "made by EventBridge", "include_deferred": False}
        try:
            return _slots(self.call("POST", "/api/v2/pools", json=body))
        except AirflowConflict:  # another runner's listen was faster
            return _slots(self.call("GET", f"/api/v2/pools/{name}"))


def _slots(pool: Mapping[str, Any]) -> PoolSlots:
    slots, free = pool["slots"], pool["open_slots"]
    if slots < 0:
        return PoolSlots(_UNLIMITED, _UNLIMITED)
    return PoolSlots(slots, max(0, free))
