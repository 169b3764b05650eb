"""Fingerprints of many ids at once are those of `Fingerprint.of`."""

from __future__ import annotations

import random

import numpy as np
import pytest

from eventbridge.event.fingerprints import Ids, fingerprint, fingerprints, fingerprints_by
from eventbridge.event.ids import Fingerprint, delivery_id


def _ids(count: int) -> tuple[list[bytes], Ids]:
    raws = [delivery_id("bus", "source", str(number), "rule", "target") for number in range(count)]
    return raws, np.frombuffer(b"".join(raws), np.uint8).reshape(-1, 16)


def test_a_set_has_the_same_fingerprint() -> None:
    """Of any number of ids, none included."""
    for count in (0, 1, 1_000):
        raws, ids = _ids(count)
        assert fingerprint(ids) == Fingerprint.from_ids(raws)


@pytest.mark.parametrize("mixed", [True, False])
def test_each_group_has_its_own(mixed: bool) -> None:
    """Whether ids of a group lie side by side or anywhere, and also if one occurs twice."""
    raws, ids = _ids(500)
    chance = random.Random(3)
    groups = [chance.choice([0, 3, 7_000_000_000]) for _ in raws]
    groups = groups if mixed else sorted(groups)
    raws, ids = [*raws, raws[0]], np.concatenate([ids, ids[:1]])
    groups.append(groups[0])

    assert fingerprints_by(np.array(groups), ids) == {
        group: Fingerprint.from_ids(raw for raw, its in zip(raws, groups, strict=True) if its == group)
        for group in set(groups)
    }


def test_nothing_has_no_groups() -> None:
    """Nothing in, nothing out."""
    _, none = _ids(0)

    assert fingerprints(none, np.zeros(0, np.int64)) == []
    assert fingerprints_by(np.zeros(0, np.int64), none) == {}
