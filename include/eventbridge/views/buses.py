"""Returns the status of event buses: the source, rules and partitions of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from eventbridge.rules.find import find_bus
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.partitions import PartitionFlow, PartitionStatus
from eventbridge.views.status import status


@dataclass(frozen=True)
class BusStatus:
    """The status of one bus.

    `source` is the type of its source, and `rules` is the number of its rules. `runners` have consumed it, or will.
    `lag` is the number of events that are not settled, summed over partitions; None if a partition's is unknown.
    """

    bus: str
    source: str
    topics: tuple[str, ...]
    rules: int
    runners: tuple[str, ...]
    retention_seconds: float
    lag: int | None
    partitions: tuple[PartitionStatus, ...]
    flows: tuple[PartitionFlow, ...]


def bus_statuses(runtime: Runtime) -> list[BusStatus]:
    """Return the status of each bus of the current rule files, by name."""
    rules = runtime.rule_set()
    found = status(runtime, batches=0)
    counts = Counter(rule.bus for rule in rules.rules.values())
    statuses = []
    for name, bus in sorted(rules.buses.items()):
        partitions = tuple(each for each in found.partitions if each.bus == name)
        statuses.append(
            BusStatus(
                bus=name,
                source=bus.source.type,
                topics=tuple(bus.source.topics),
                rules=counts[name],
                runners=tuple(sorted(runner for runner, of in rules.runners().items() if of == name)),
                retention_seconds=bus.retention_seconds,
                lag=_total_lag(partitions),
                partitions=partitions,
                flows=tuple(each for each in found.flows if each.bus == name),
            )
        )
    return statuses


def bus_status(runtime: Runtime, name: str) -> BusStatus:
    """Return the status of one bus. Raises NotFoundError if no rule file defines it."""
    find_bus(runtime.rule_set(), name)
    return next(each for each in bus_statuses(runtime) if each.bus == name)


def _total_lag(partitions: Iterable[PartitionStatus]) -> int | None:
    lags = [each.lag for each in partitions]
    return None if None in lags else sum(lag for lag in lags if lag is not None)
