"""Computes the row id of a message in the bus's file, and the partition of a key."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, timedelta

# A message's position is its partition's number and its offset in one integer of 63 bits: 2^40 offsets a partition.
_OFFSET_BITS = 40

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def partition_of_key(key: str, partitions: int) -> int:
    """Return the index of the partition for a key; the same in every process and version."""
    return zlib.crc32(key.encode("utf-8", "surrogatepass")) % partitions


def position(number: int, offset: int) -> int:
    """Return the row id of a message, by the number of its partition and its offset."""
    return number << _OFFSET_BITS | offset


def offset_of(position: int) -> int:
    """Return the offset of a message in its partition, by its row id."""
    return position & ((1 << _OFFSET_BITS) - 1)


def microseconds(at: datetime) -> int:
    """Return an aware time as whole microseconds since 1970 (UTC)."""
    return (at - _EPOCH) // _MICROSECOND
