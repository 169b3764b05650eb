"""Reads what a dead process left: which deliveries have a valid outcome, and whether offsets are too far ahead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from faults.world import World

from eventbridge.errors import StoreFileMissing
from eventbridge.event.ids import delivery_id_text
from eventbridge.repair.audit import audit
from eventbridge.store.parquet import read_table

_COLUMNS = ["delivery_id", "target", "outcome"]


def look(runtime: World) -> dict[str, Any]:
    """Return the ids that recorded segments call `delivered` (by target) and `dead`, and as `wrong` everything that is
    committed but not durable; changes nothing.
    """
    dead: set[str] = set()
    delivered: dict[str, list[str]] = {}
    for row in _outcomes(runtime):
        if row["outcome"] == "dead_lettered":
            dead.add(delivery_id_text(row["delivery_id"]))
        if row["outcome"] == "delivered":
            delivered.setdefault(row["target"], []).append(delivery_id_text(row["delivery_id"]))
    return {"dead": sorted(dead), "delivered": delivered, "wrong": [*_ahead(runtime), *_not_durable(runtime)]}


def _outcomes(runtime: World) -> Iterator[dict[str, Any]]:
    whole = [batch for batch in runtime.ledger.batches.find(limit=None) if batch.kept == "all"]
    for batch in whole:
        for file in runtime.ledger.files.list_for_batch(batch.batch_id, "outcome"):
            try:
                yield from read_table(runtime.store, file.path or "", columns=_COLUMNS).to_pylist()
            except StoreFileMissing:
                if runtime.kind != "repair":  # in a repair a file was removed, so its content is unknown
                    raise


def _not_durable(runtime: World) -> list[str]:
    """Return which parts of the committed batches do not follow from their files; offsets must depend only on these."""
    if not any(batch.state == "committed" for batch in runtime.ledger.batches.find(limit=None)):
        moved = [row for row in runtime.ledger.offsets.find() if row.offset != 0]
        return [f"no batch is committed, and {row.partition} stands at {row.offset}" for row in moved]
    return list(audit(runtime).differences)


def _ahead(runtime: World) -> list[str]:
    """Return the partitions whose offset on the bus is beyond the ledger's."""
    wrong = []
    for bus in runtime.rule_set().buses.values():
        source = runtime.open_source(bus)
        try:
            for group in {row.group for row in runtime.ledger.offsets.find()}:
                standing = runtime.ledger.offsets.committed(group)
                on_bus = source.committed(group)
                wrong += [
                    f"{partition}: bus {on_bus[partition]}"
                    for partition in on_bus
                    if on_bus[partition] > standing.get(partition, 0)
                ]
        finally:
            source.close()
    return wrong
