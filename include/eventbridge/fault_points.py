"""Provides fault points at every call that can lose data, so that a test can stop the process at any of them.

Adapters call `reach(point)` before and after each store, ledger, bus and send call.
In production no hook is installed and a call costs one comparison.
`tests/faults` kills the process at every point, and also makes each call fail instead.
"""

from __future__ import annotations

from collections.abc import Callable

Hook = Callable[[str], None]

_hook: Hook | None = None

#: Points before calls that change nothing; a crash there is equivalent to a crash after the previous call.
READS = frozenset(
    {
        "bus.read",
        "ledger.begin",
        "ledger.select",
        "store.exists",
        "store.get",
        "store.list",
        "store.open",
        "store.size",
    }
)


def install(hook: Hook | None) -> None:
    """Call `hook` with the name of every point reached from now on in this process; None removes it.

    A hook may end the process, raise in place of the call, or count.
    """
    global _hook  # one process-wide switch by design
    _hook = hook


def reach(point: str) -> None:
    """Call the installed hook with `point`, such as `store.put` or `ledger.commit.done`."""
    if _hook is not None:
        _hook(point)
