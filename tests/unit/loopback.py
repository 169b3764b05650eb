"""What tests of http targets on this machine have in common: the addresses that may be reached, and the time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_network

from demo.receiver import ADDRESSES

LOOPBACK = (ip_network(ADDRESSES),)


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def later(seconds: float = 30.0) -> datetime:
    """Return the time in so many seconds."""
    return now() + timedelta(seconds=seconds)
