"""Makes events that are, or were, slow: long arrays, many keys, nested arrays."""

from __future__ import annotations

import json
import random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from benchmarks.match import events as e
from benchmarks.match.events import Numbers, make_events, pick

KEYS_AN_EVENT: Final = 14
KEY_VALUES: Final = [*(f"v{number}" for number in range(20)), *range(100)]

_SIZE: Final = 519


def make_array_events(count: int, length: int, *, seed: int = 1, block: int = 0) -> pa.Array:
    """Return events whose labels are arrays of `length` scalars: words that rules want, others, numbers, booleans."""
    rng = np.random.default_rng([seed, block, length])
    scalars = [
        json.dumps(scalar) for scalar in (*e.LABELS, True, None, *range(200), *(f"label {i}" for i in range(200)))
    ]
    labels = [",".join(pick(scalars, rng.integers(0, len(scalars), length)).to_pylist()) for _ in range(count)]
    texts = make_events(count, seed=seed, block=block)
    # An event may have labels already; of two equal keys the last one counts.
    return pc.binary_join_element_wise(
        pc.utf8_slice_codeunits(texts, 0, -2), ',"labels":[', pa.array(labels), "]}}", ""
    )


def make_key_events(count: int, keys: int, *, seed: int = 1, block: int = 0) -> pa.Array:
    """Return events of 519 bytes with `KEYS_AN_EVENT` of so many different keys in their data."""
    rng = np.random.default_rng([seed, block, keys])
    drawn = _distinct(rng, count, keys)
    names = [f'"key_{key}":' for key in range(keys)]
    values = [f"{json.dumps(value)}," for value in KEY_VALUES]
    numbers = pc.cast(pa.array(np.arange(count)), pa.string())
    members = [
        text
        for position in range(KEYS_AN_EVENT)
        for text in (pick(names, drawn[:, position]), pick(values, rng.integers(0, len(values), count)))
    ]
    head = '","source":"/keys","type":"key.set","data":{'
    texts = pc.binary_join_element_wise(
        f'{{"specversion":"1.0","id":"{block}-', numbers, head, *members, '"text":"', ""
    )
    missing = _SIZE - len('"}}') - pc.binary_length(texts).to_numpy(zero_copy_only=False).astype(np.int64)
    fillings = ["x" * length for length in range(int(missing.max(initial=0)) + 1)]
    return pc.binary_join_element_wise(texts, pick(fillings, missing), '"}}', "")


def _distinct(rng: np.random.Generator, count: int, keys: int) -> Numbers:
    """Return rows of `KEYS_AN_EVENT` different numbers: rows in which one comes twice are drawn again."""
    drawn = rng.integers(0, keys, (count, KEYS_AN_EVENT))
    again = np.arange(count)
    while len(again):
        ordered = np.sort(drawn[again], axis=1)
        again = again[(ordered[:, 1:] == ordered[:, :-1]).any(axis=1)]
        drawn[again] = rng.integers(0, keys, (len(again), KEYS_AN_EVENT))
    return drawn


def make_order_events(count: int, *, seed: int = 1, block: int = 0) -> pa.Array:
    """Return events of two or three orders of two or three lines each: arrays of objects inside arrays of objects."""
    draw = random.Random(f"orders {seed} {block}")
    return pa.array(
        _event(f"{block}-{number}", {"orders": [_order(draw) for _ in range(draw.choice((2, 3)))]})
        for number in range(count)
    )


def _order(draw: random.Random) -> dict[str, Any]:
    return {"number": draw.randrange(10**6), "lines": [_line(draw) for _ in range(draw.choice((2, 3)))]}


def make_object_events(count: int, length: int, *, seed: int = 1, block: int = 0) -> pa.Array:
    """Return events with one array of so many objects of two keys."""
    draw = random.Random(f"objects {seed} {block}")
    return pa.array(
        _event(f"{block}-{number}", {"items": [_line(draw) for _ in range(length)]}) for number in range(count)
    )


def _line(draw: random.Random) -> dict[str, Any]:
    return {"sku": f"K-{draw.randrange(e.SKUS):04d}", "quantity": draw.randrange(1, 5)}


def _event(id_: str, data: dict[str, Any]) -> str:
    event = {"specversion": "1.0", "id": id_, "source": "/orders", "type": "order.placed", "data": data}
    return json.dumps(event, separators=(",", ":"))
