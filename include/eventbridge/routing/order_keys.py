"""The order keys of deliveries as route writes them, and their shards as chunks are cut by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.event.json_document import JsonValue
from eventbridge.model.partition import Partition
from eventbridge.policy.ordering import SINGLE_KEY, shard_of
from eventbridge.rules import Target
from eventbridge.transform import find_order_key

if TYPE_CHECKING:
    from eventbridge.routing.events import SliceEvents  # with the kernel, which audits do not need

#: Shard of a delivery that has none: its target is not ordered.
UNORDERED = -1


def order_key(target: Target, document: JsonValue, row: dict[str, Any]) -> str | None:
    """Return the order key of one delivery, None if its target is not ordered; `row` says where its event lay."""
    if not target.ordered:
        return None
    if target.ordering_key is None:
        return SINGLE_KEY
    if target.ordering_key == "partition":
        return _partition_key(Partition(row["topic"], row["broker"], row["partition_id"]))
    return find_order_key(target.ordering_key, document) or SINGLE_KEY


def order_keys(
    targets: Sequence[Target], counts: npt.NDArray[np.int64], events: SliceEvents, numbers: npt.NDArray[np.int64]
) -> pa.Array:
    """Return the order keys of deliveries, `counts` of each target in turn; null where a target is not ordered."""
    if not any(target.ordered for target in targets):
        return pa.nulls(len(numbers), pa.string())
    parts = []
    first = 0
    for target, count in zip(targets, counts.tolist(), strict=True):
        parts.append(_keys_of(target, events, numbers[first : first + count]))
        first += count
    return pa.concat_arrays(parts)


def shards_of(keys: pa.Array) -> npt.NDArray[np.int16]:
    """Return the shard of each key, UNORDERED for null."""
    if keys.null_count == len(keys):
        return np.full(len(keys), UNORDERED, np.int16)
    found = keys.dictionary_encode()
    shards = np.array([shard_of(key) for key in found.dictionary.to_pylist()], np.int16)
    codes = found.indices.fill_null(0).to_numpy(zero_copy_only=False)
    return np.where(keys.is_null().to_numpy(zero_copy_only=False), UNORDERED, shards[codes]).astype(np.int16)


def by_shard(rows: Iterable[tuple[int, dict[str, Any]]]) -> dict[int | None, list[tuple[int, dict[str, Any]]]]:
    """Return numbered delivery rows of a target by shard, None where it is not ordered."""
    shards: dict[int | None, list[tuple[int, dict[str, Any]]]] = {}
    for number, row in rows:
        key = row["order_key"]
        shards.setdefault(None if key is None else shard_of(key), []).append((number, row))
    return shards


def _keys_of(target: Target, events: SliceEvents, numbers: npt.NDArray[np.int64]) -> pa.Array:
    if not target.ordered:
        return pa.nulls(len(numbers), pa.string())
    if target.ordering_key is None:
        return pa.array([SINGLE_KEY] * len(numbers), pa.string())
    if target.ordering_key == "partition":
        columns = events.places.select(["topic", "broker", "partition_id"]).take(pa.array(numbers)).to_pylist()
        return pa.array([_partition_key(Partition(**row)) for row in columns], pa.string())
    path = target.ordering_key
    found = (find_order_key(path, events.parsed(number).document) for number in numbers.tolist())
    return pa.array([key or SINGLE_KEY for key in found], pa.string())


def _partition_key(partition: Partition) -> str:
    return f"{partition.topic}/{partition.broker}/{partition.partition_id}"
