"""The name of a process in the ledger, and whether it still exists; a process on another host counts as alive."""

from __future__ import annotations

import os
import socket


def this_process() -> str:
    """Return the name of this process in the ledger: `host:number`."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_gone(name: str) -> bool:
    """Return whether `host:number` names a process of this host that no longer exists.

    False if that cannot be known: the process is on another host, or the system gave its number to another process.
    """
    host, _, number = name.rpartition(":")
    return host == socket.gethostname() and number.isdecimal() and not _is_there(int(number))


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
