"""Computes `Fingerprint.from_ids` for many delivery ids, group by group, with NumPy vectors."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from eventbridge.event.ids import Fingerprint

#: Delivery ids of 16 bytes each: an array of shape (n, 16) with contiguous rows.
Ids = npt.NDArray[np.uint8]

_FACTORS: Final = np.array([0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB], np.uint64)


def fingerprint(ids: Ids) -> Fingerprint:
    """Return the fingerprint of delivery ids."""
    found = fingerprints(ids, np.array([len(ids)])) if len(ids) else []
    return found[0] if found else Fingerprint()


def fingerprints(ids: Ids, counts: npt.NDArray[np.int64]) -> list[Fingerprint]:
    """Return the fingerprints of consecutive groups of ids; `counts` are the sizes of the groups, none of them 0."""
    if not len(counts):
        return []
    hashed = _hashed(ids)
    starts = np.cumsum(counts) - counts
    sums, xors = np.add.reduceat(hashed, starts), np.bitwise_xor.reduceat(hashed, starts)
    return [Fingerprint(*each) for each in zip(counts.tolist(), sums.tolist(), xors.tolist(), strict=True)]


def fingerprints_by(groups: npt.NDArray[np.int64], ids: Ids) -> dict[int, Fingerprint]:
    """Return the fingerprint of each group; `groups` has the group of each id."""
    if not len(groups):
        return {}
    # The ids of a group are mostly adjacent, so their runs are summed without sorting unless there are many runs.
    starts = np.concatenate(([0], np.flatnonzero(np.diff(groups)) + 1))
    counts = np.diff(np.append(starts, len(groups)))
    found: dict[int, Fingerprint] = {}
    if len(starts) * 4 > len(groups):
        order = np.argsort(groups, kind="stable")
        groups, ids = groups[order], ids[order]
        starts = np.concatenate(([0], np.flatnonzero(np.diff(groups)) + 1))
        counts = np.diff(np.append(starts, len(groups)))
    for group, each in zip(groups[starts].tolist(), fingerprints(ids, counts), strict=True):
        found[group] = found[group] + each if group in found else each
    return found


def _hashed(ids: Ids) -> npt.NDArray[np.uint64]:
    # the same hash as `ids._hash64`; NumPy's unsigned arithmetic is modulo 2^64
    halves = ids.view(">u8").astype(np.uint64)
    value: npt.NDArray[np.uint64] = halves[:, 0] ^ (halves[:, 1] * _FACTORS[0])
    value = (value ^ (value >> np.uint64(30))) * _FACTORS[1]
    value = (value ^ (value >> np.uint64(27))) * _FACTORS[2]
    value ^= value >> np.uint64(31)
    return value
