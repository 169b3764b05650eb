"""The results of all deliveries, from the files in the store, for the demo's table and the comparison of receipts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from eventbridge.delivery.segments import segments
from eventbridge.event.ids import delivery_id_text
from eventbridge.model.outcome import SettledDelivery
from eventbridge.pipeline.settle.settlement import read_settled
from eventbridge.repair.audit import Audit
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.parquet import read_table


@dataclass
class Tally:
    """The results of one target. `delivered` and `dead` are webhook-ids; `seconds` are from publish to delivery."""

    delivered: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)
    retried: set[str] = field(default_factory=set)

    def quantile(self, share: float) -> float | None:
        """Return the time that `share` of the deliveries did not exceed, None without any."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def tally(runtime: Runtime) -> dict[tuple[str, str], Tally]:
    """Return the results of the committed batches, by (rule, target)."""
    tallies: dict[tuple[str, str], Tally] = defaultdict(Tally)
    for batch in runtime.ledger.batches.find(limit=None):
        if batch.state == "committed":
            for settled in read_settled(runtime, batch.batch_id):
                _take(tallies[settled.rule, settled.target], settled)
            for row in _attempts(runtime, batch.batch_id):
                tallies[row["rule"], row["target"]].retried.add(delivery_id_text(row["delivery_id"]))
    return tallies


def table(tallies: dict[tuple[str, str], Tally], audited: Audit) -> list[list[str]]:
    """Return the demo's table, its head first: counts from the audit, times and retries from the tally."""
    head = ["rule/target", "matched", "delivered", "retried", "pending", "dead-lettered", "p50 s", "p99 s"]
    rows = []
    for key, sums in audited.deliveries.items():
        rule, _, target = key.partition("/")
        found = tallies.get((rule, target), Tally())
        counts = [sums["matched"], sums["delivered"], len(found.retried), sums["pending"], sums["dead_lettered"]]
        times = [found.quantile(0.5), found.quantile(0.99)]
        rows.append([key, *(f"{count:,}" for count in counts), *("-" if t is None else f"{t:.1f}" for t in times)])
    return [head, *rows]


def _take(found: Tally, settled: SettledDelivery) -> None:
    webhook_id = delivery_id_text(settled.delivery_id)
    if settled.status == "delivered":
        found.delivered.add(webhook_id)
        assert settled.settled_at is not None, "a delivered delivery has a response"
        found.seconds.append((settled.settled_at - settled.published_at).total_seconds())
    elif settled.status == "dead_lettered":
        found.dead.add(webhook_id)


def _attempts(runtime: Runtime, batch_id: str) -> Iterator[dict[str, Any]]:
    """Yield the attempts after the first of each delivery."""
    for file in segments(runtime, batch_id):
        if file.path is not None:
            rows = read_table(runtime.store, file.path, columns=["delivery_id", "rule", "target", "attempt"])
            yield from (row for row in rows.to_pylist() if row["attempt"] > 1)
