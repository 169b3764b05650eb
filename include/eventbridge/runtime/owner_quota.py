"""Compares owners with their quotas: pending deliveries of their rules, and bytes of their buses in the store."""

from __future__ import annotations

from dataclasses import dataclass

from eventbridge.rules import Bus, RuleSet
from eventbridge.rules.model import Owner
from eventbridge.runtime.runtime import Runtime


@dataclass(frozen=True)
class OwnerStatus:
    """An owner with quotas: current values and maxima; a maximum of None means no such quota.

    `published_per_second` is the limit of all API servers together.
    """

    owner: str
    published_per_second: float | None
    pending: int
    pending_max: int | None
    stored: int
    stored_bytes: int | None

    @property
    def full(self) -> bool:
        """Whether ingestion of its buses is stopped, because they have their maximum in the store."""
        return self.stored_bytes is not None and self.stored >= self.stored_bytes


def owner_statuses(runtime: Runtime, rules: RuleSet) -> list[OwnerStatus]:
    """Return the status of the owners that have quotas in today's rules, by name."""
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
    """Return the owners with the maximum of pending deliveries: new matches of their rules are deferred.

    `rules` are those of a batch, with the quotas that count; pending deliveries are those of all rules of today.
    """
    quotas = {name: quota.pending_max for name, quota in rules.quotas.items() if quota.pending_max is not None}
    if not quotas:
        return set()
    pending = _pending(runtime, runtime.rule_set())
    return {name for name, most in quotas.items() if pending.get(name, 0) >= most}


def stored_of(runtime: Runtime, rules: RuleSet, owner: str) -> int:
    """Return the bytes in the store that batches of an owner's buses left, since they are counted."""
    runners = rules.runners()
    own = {name for name, bus in rules.buses.items() if bus.owner == owner}
    sizes = runtime.ledger.store_count().sizes  # a retry or redrive batch has no bus: that of its runner counts
    return max(0, sum(each.size for each in sizes if (each.bus or runners.get(each.runner)) in own))


def storage_refusal(runtime: Runtime, rules: RuleSet, bus: Bus) -> str:
    """Return why nothing is taken from a bus, whose owner has the maximum in the store; "" if it is."""
    quota = rules.quotas.get(bus.owner or "", Owner())
    if bus.owner is None or quota.stored_bytes is None:
        return ""
    held = stored_of(runtime, rules, bus.owner)
    if held < quota.stored_bytes:
        return ""
    return f"the buses of {bus.owner} have {held:,} bytes in the store, and its quota is {quota.stored_bytes:,}"


def _pending(runtime: Runtime, rules: RuleSet) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, count in runtime.ledger.pending_by_rule().items():
        if name in rules.rules and (owner := rules.owner_of(rules.rules[name])) is not None:
            found[owner] = found.get(owner, 0) + count
    return found
