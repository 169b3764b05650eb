"""Counts an hour's batches from their manifests and the reasons of their dead letters."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eventbridge.errors import StoreFileDamaged
from eventbridge.model.batch import Batch
from eventbridge.policy.quality import BusCounts, TargetCounts
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.store.columns import codes_of, flag_column, valid_of
from eventbridge.store.formats import require_known_format
from eventbridge.store.parquet import read_table


@dataclass
class HourCounts:
    """An hour's counts by bus and by (rule, target), and the manifests of batches that routed new events."""

    buses: dict[str, BusCounts] = field(default_factory=lambda: defaultdict(BusCounts))
    targets: dict[tuple[str, str], TargetCounts] = field(default_factory=lambda: defaultdict(TargetCounts))
    routed: list[Mapping[str, Any]] = field(default_factory=list)


def count_hour(runtime: Runtime, batches: Iterable[Batch]) -> HourCounts:
    """Return the counts of committed batches without replays and redrives, which belong to other hours.

    Raises StoreError for a lost or damaged file.
    """
    counts = HourCounts()
    for batch in batches:
        if batch.kind in ("normal", "retry"):
            _count(runtime, counts, batch, _manifest(runtime, batch))
    return counts


def _manifest(runtime: Runtime, batch: Batch) -> dict[str, Any]:
    path = layout.manifest(batch.planned_at, batch.batch_id)
    try:
        found = json.loads(runtime.store.get(path))
    except ValueError as error:
        raise StoreFileDamaged(f"{path!r} is not JSON; `eventbridge batch repair {batch.batch_id}`") from error
    require_known_format(path, found.get("format"))
    return dict(found)


def _count(runtime: Runtime, counts: HourCounts, batch: Batch, manifest: Mapping[str, Any]) -> None:
    if batch.kind == "normal":
        bus, numbers = counts.buses[batch.bus], manifest["counts"]
        bus.events += numbers["read"] - numbers.get("tombstone", 0)
        bus.malformed += numbers["malformed"]
        bus.duplicate += numbers["duplicate"]
    new = batch.kind == "normal" or "taken_deferred_matches" in manifest
    for name, fingerprints in manifest["fingerprints"].items():
        for key, (count, *_) in fingerprints.items():
            rule, _, target = key.partition("/")
            if name == "delivered":
                counts.targets[rule, target].delivered += count
            elif name == "matched" and new:
                counts.targets[rule, target].matched += count
            elif name == "pending" and new:
                counts.targets[rule, target].pending += count
    for path in manifest["files"]["dead_letter"]:
        _count_dead_letters(runtime, counts, path)
    if new:
        counts.routed.append(manifest)


def _count_dead_letters(runtime: Runtime, counts: HourCounts, path: str) -> None:
    table = read_table(
        runtime.store, path, ["delivery_id", "rule", "target", "reason"], coded=["rule", "target", "reason"]
    )
    table = table.filter(flag_column(valid_of(table["delivery_id"])))
    (rule_of, rules), (target_of, targets), (reason_of, reasons) = (
        codes_of(table[name]) for name in ("rule", "target", "reason")
    )
    kinds, numbers = np.unique(np.stack([rule_of, target_of, reason_of]), axis=1, return_counts=True)
    for (rule, target, reason), count in zip(kinds.T.tolist(), numbers.tolist(), strict=True):
        dead = counts.targets[rules[rule], targets[target]].dead_letters
        dead[reasons[reason]] = dead.get(reasons[reason], 0) + count
