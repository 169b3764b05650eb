"""Reserves ports, so that environments that start at the same time on one machine get different ones."""

from __future__ import annotations

import atexit
import secrets
import socket

#: The range of other ports: below those that the system uses for outgoing connections.
_OTHERS = range(20_000, 30_000)

#: The socket that reserves a port for this process, by port.
_reserved: dict[int, socket.socket] = {}


@atexit.register
def _release() -> None:
    for name in _reserved.values():
        name.close()


def reserve(wanted: int | None = None) -> int:
    """Return the wanted port if it is free, otherwise any free one, reserved for as long as this process lives.

    A service binds its port seconds later, and again after a restart. So a name in Linux's abstract socket namespace
    reserves it: one per machine and port, released when its process ends.
    """
    if wanted is not None and _take(wanted):
        return wanted
    while True:
        port = _OTHERS.start + secrets.randbelow(len(_OTHERS))
        if _take(port):
            return port


def _take(port: int) -> bool:
    if port in _reserved:
        return False
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0eventbridge/demo/port/{port}")
    except OSError:
        name.close()
        return False
    if is_listening(port):
        name.close()
        return False
    _reserved[port] = name
    return True


def is_listening(port: int) -> bool:
    """Return whether a process listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a port in TIME_WAIT is free
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
