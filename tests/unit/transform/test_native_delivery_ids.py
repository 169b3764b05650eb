"""Delivery ids and fingerprints made by compiled code are those of `eventbridge.event.ids`."""

from __future__ import annotations

import hashlib
import itertools
import random

import numpy as np
import pyarrow as pa
import pytest

from eventbridge.event.fingerprints import fingerprints
from eventbridge.event.ids import Fingerprint, delivery_id
from eventbridge.matching.scan.texts import padded_texts
from eventbridge.transform.kernel.ids import BLOCK, DeliveryIds, digest16


@pytest.mark.parametrize("length", [0, 1, 127, 128, 129, 255, 256, 257, 1000])
def test_the_hash_is_blake2b(length: int) -> None:
    """Also at the ends of blocks, and for nothing."""
    content = bytes(index % 251 for index in range(length))
    text = np.frombuffer(content + b"\xff" * 2 * BLOCK, np.uint8).copy()
    state = np.zeros(8, np.uint64)

    digest16(text.ctypes.data, length, state.ctypes.data)

    assert state[:2].tobytes() == hashlib.blake2b(content, digest_size=16).digest()


@pytest.mark.parametrize("replay_id", ["", "replay é"])
def test_ids_and_fingerprints_are_the_same(replay_id: str) -> None:
    """For texts of any length and script, and targets that share nothing but the bus."""
    chance = random.Random(7)
    sources = ["/" + "sé"[: chance.randint(0, 2)] * chance.randint(0, 200) for _ in range(50)]
    event_ids = [f"😀{number}" + "x" * chance.randint(0, 90) for number in range(50)]
    targets = [("rule" * chance.randint(1, 40), f"target-{number}") for number in range(9)]
    of_target = np.sort(np.array([chance.choice([0, 1, 4, 8]) for _ in range(300)], np.int64))
    of_event = np.array([chance.randrange(50) for _ in range(300)], np.int64)
    expected = [
        delivery_id("büs", sources[event], event_ids[event], *targets[target], replay_id)
        for event, target in zip(of_event, of_target, strict=True)
    ]

    ids = DeliveryIds("büs", targets, replay_id).compute(
        padded_texts(pa.array(sources)), padded_texts(pa.array(event_ids)), of_event, of_target
    )
    counts = np.bincount(of_target)[[0, 1, 4, 8]]
    starts = [0, *np.cumsum(counts).tolist()]

    assert [each.tobytes() for each in ids] == expected
    assert fingerprints(ids, counts) == [
        Fingerprint.from_ids(expected[start:end]) for start, end in itertools.pairwise(starts)
    ]
