"""Gives every environment ports of its own, however many start at once on this machine."""

from __future__ import annotations

import atexit
import secrets
import socket

#: Where other ports are looked for: below those that the system gives to outgoing connections.
_OTHERS = range(20_000, 30_000)

#: What keeps a reserved port for this process, by port.
_reserved: dict[int, socket.socket] = {}


@atexit.register
def _let_go() -> None:
    for name in _reserved.values():
        name.close()


def reserve(wanted: int | None = None) -> int:
    """Return the wanted port if it is free, else any free one; no other environment gets it while this process lives.

    A service binds its port seconds after it was looked for. Until then, and while it is started again, a name in
    Linux's abstract socket namespace stands for it: one per machine and port, gone with the process that holds it.
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
    if listens(port):
        name.close()
        return False
    _reserved[port] = name
    return True


def listens(port: int) -> bool:
    """Return whether somebody listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a port in TIME_WAIT is free
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
