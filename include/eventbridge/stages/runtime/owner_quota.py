"""How owners stand to their quotas: deliveries that wait for their rules, bytes that their buses have in the store."""

from __future__ import annotations

from dataclasses import dataclass

from eventbridge.rule import Bus, RuleSet
from eventbridge.rule.owner import Owner
from eventbridge.stages.runtime.runtime import Runtime


@dataclass(frozen=True)
class OwnerStatus:
    """An owner that has quotas: what waits and what is stored beside how much may; None: it has no such quota.

    `published_per_second` is what all servers of the API let in together.
    """

    owner: str
    published_per_second: float | None
    pending: int
    pending_max: int | None
    stored: int
    stored_bytes: int | None

    @property
    def full(self) -> bool:
        """Return whether its buses are not taken from: they have as much in the store as they may."""
        return self.stored_bytes is not None and self.stored >= self.stored_bytes


def owner_statuses(runtime: Runtime, rules: RuleSet) -> list[OwnerStatus]:
    """Return how the owners stand that have quotas in all rules of today, by name."""
    if not rules.quotas:
        return []
    pending = _pending(runtime, rules)
    return [
        OwnerStatus(
            name,
            quota.published_per_second,
            pending.get(name, 0),
            quota.pending_max,
            stored_of(runtime, rules, name) if quota.stored_bytes is not None else 0,
            quota.stored_bytes,
        )
        for name, quota in sorted(rules.quotas.items())
    ]


def full_owners(runtime: Runtime, rules: RuleSet) -> set[str]:
    """Return the owners of whose rules as many deliveries wait as may: what they match of new batches is deferred.

    `rules` are those of a batch, whose owners' quotas count; what waits is that of all rules of today.
    """
    quotas = {name: quota.pending_max for name, quota in rules.quotas.items() if quota.pending_max is not None}
    if not quotas:
        return set()
    pending = _pending(runtime, runtime.rule_set())
    return {name for name, most in quotas.items() if pending.get(name, 0) >= most}


def stored_of(runtime: Runtime, rules: RuleSet, owner: str) -> int:
    """Return the bytes that batches left in the store of the buses of an owner, since they are counted."""
    runners = rules.runners()
    own = {name for name, bus in rules.buses.items() if bus.owner == owner}
    sizes = runtime.ledger.store_count().sizes  # a retry batch, or a redrive, has no bus: its runner's counts
    return max(0, sum(each.size for each in sizes if (each.bus or runners.get(each.runner)) in own))


def storage_refusal(runtime: Runtime, rules: RuleSet, bus: Bus) -> str:
    """Return why nothing is taken from a bus: its owner has as much in the store as may be; "" if it is."""
    quota = rules.quotas.get(bus.owner or "", Owner())
    if bus.owner is None or quota.stored_bytes is None:
        return ""
    held = stored_of(runtime, rules, bus.owner)
    if held < quota.stored_bytes:
        return ""
    return f"the buses of {bus.owner} have {held:,} bytes in the store, and {quota.stored_bytes:,} are its quota"


def _pending(runtime: Runtime, rules: RuleSet) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, count in runtime.ledger.pending_by_rule().items():
        if name in rules.rules and (owner := rules.owner_of(rules.rules[name])) is not None:
            found[owner] = found.get(owner, 0) + count
    return found
