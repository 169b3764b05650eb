"""How far a time is from now, in words: `3 min ago`, `in 2 h`."""

from __future__ import annotations

from datetime import datetime
from typing import Final

#: Seconds of each unit.
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def distance(at: datetime, now: datetime) -> str:
    """Return the distance of a time from now in its largest unit: 47 hours ago are `1 d ago`."""
    seconds = int((now - at).total_seconds())
    for size, unit in _UNITS:
        if count := abs(seconds) // size:
            return f"{count:,} {unit} ago" if seconds > 0 else f"in {count:,} {unit}"
    return "now"
