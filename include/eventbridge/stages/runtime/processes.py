"""Whether a process that the ledger names is there: one of another host may be, for all that is known here."""

from __future__ import annotations

import os
import socket


def this_process() -> str:
    """Return the name of this process in the ledger: `host:number`."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_gone(name: str) -> bool:
    """Return whether `host:number` was a process of this host that is there no more.

    False where nobody knows: the process is of another host, or its number was given to another process.
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
