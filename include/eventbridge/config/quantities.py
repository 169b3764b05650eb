"""Parses and writes the durations, sizes and rates in settings and rule files: `500ms`, `24h`, `64 MiB`, `200/s`."""

from __future__ import annotations

import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_BYTES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_RATE = re.compile(r"(\d{1,7})/([sm])", re.ASCII)
_QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?([A-Za-z]*)", re.ASCII)


def parse_duration(text: str) -> float:
    """Return a duration such as `1.5h` in seconds. Raises ValueError unless it is a number with the unit ms, s, m, h or
    d."""
    parts = _QUANTITY.fullmatch(text)
    if parts is None or parts[2] not in _SECONDS:
        raise ValueError(f"{text!r} is not a duration such as 500ms, 10s, 5m, 24h or 30d")
    return round(float(parts[1]) * _SECONDS[parts[2]], 9)


def parse_size(text: str) -> int:
    """Return a size such as `64MiB` in bytes. Raises ValueError unless its unit is B, KiB, MiB, GiB or missing."""
    parts = _QUANTITY.fullmatch(text)
    if parts is None or parts[2] not in _BYTES:
        raise ValueError(f"{text!r} is not a size such as 1048576, 512KiB, 64MiB or 1GiB")
    size = float(parts[1]) * _BYTES[parts[2]]
    if not size.is_integer():
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(size)


def parse_rate(text: str) -> float:
    """Return a rate such as `200/s` or `10/m` as a number per second. Raises ValueError for any other form and for
    zero."""
    parts = _RATE.fullmatch(text)
    if parts is None or int(parts[1]) == 0:
        raise ValueError(f"{text!r} is not a rate such as 200/s or 10/m")
    return int(parts[1]) / _SECONDS[parts[2]]


def write_size(size: int) -> str:
    """Return the shortest form that `parse_size` reads, such as `256KiB`."""
    for unit in ("GiB", "MiB", "KiB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return str(size)


def write_duration(seconds: float) -> str:
    """Return the shortest form that `parse_duration` reads, such as `1d` for 24 hours or `500ms` for half a second."""
    for unit in ("d", "h", "m", "s"):
        count = seconds / _SECONDS[unit]
        if count >= 1 and count.is_integer():
            return f"{int(count)}{unit}"
    return f"{seconds * 1000:g}ms" if seconds < 1 else f"{seconds:g}s"
