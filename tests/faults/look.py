"""What a process that died has left: which deliveries have an outcome that counts, and whether offsets ran ahead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from faults.world import World

from eventbridge.errors import StoreFileMissing
from eventbridge.event.ids import delivery_id_text
from eventbridge.stages.operate.audit import audit
from eventbridge.store.parquet import read_table

_COLUMNS = ["delivery_id", "target", "outcome"]


def look(work: World) -> dict[str, Any]:
    """Return what recorded segments say was `delivered` (delivery ids by target) and what is `dead` (delivery ids),
    and `wrong`, whatever is committed and not durable; changes nothing.
    """
    dead: set[str] = set()
    delivered: dict[str, list[str]] = {}
    for row in _outcomes(work):
        if row["outcome"] == "dead_lettered":
            dead.add(delivery_id_text(row["delivery_id"]))
        if row["outcome"] == "delivered":
            delivered.setdefault(row["target"], []).append(delivery_id_text(row["delivery_id"]))
    return {"dead": sorted(dead), "delivered": delivered, "wrong": [*_ahead(work), *_not_durable(work)]}


def _outcomes(work: World) -> Iterator[dict[str, Any]]:
    whole = [batch for batch in work.ledger.batches(limit=None) if batch.kept == "all"]
    for batch in whole:
        for file in work.ledger.files(batch.batch_id, "outcome"):
            try:
                yield from read_table(work.store, file.path or "", columns=_COLUMNS).to_pylist()
            except StoreFileMissing:
                if work.kind != "repair":  # there a file was taken away, and what it said is not known
                    raise


def _not_durable(work: World) -> list[str]:
    """Return what of the committed batches does not follow from their files; the offsets must rest on these alone."""
    if not any(batch.state == "committed" for batch in work.ledger.batches(limit=None)):
        moved = [row for row in work.ledger.consumer_offsets() if row.offset != 0]
        return [f"no batch is committed, and {row.partition} stands at {row.offset}" for row in moved]
    return list(audit(work).differences)


def _ahead(work: World) -> list[str]:
    """Return the partitions whose bus was told of more than the ledger has committed."""
    wrong = []
    for bus in work.rule_set().buses.values():
        source = work.open_source(bus)
        try:
            for group in {row.group for row in work.ledger.consumer_offsets()}:
                standing = work.ledger.committed_offsets(group)
                told = source.committed(group)
                wrong += [
                    f"{partition}: bus {told[partition]}"
                    for partition in told
                    if told[partition] > standing.get(partition, 0)
                ]
        finally:
            source.close()
    return wrong
