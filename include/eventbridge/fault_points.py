"""The one place every call that can lose data goes through, so that a test can stop the process at the n-th of them.

Adapters call `reach(point)` before and after each store, ledger, bus and send call.
In production no hook is installed and a call costs one comparison.
`tests/faults` kills at every point, and lets the call fail instead.
"""

from __future__ import annotations

from collections.abc import Callable

Hook = Callable[[str], None]

_hook: Hook | None = None

#: Points before calls that change nothing: to die there is to die after the call before.
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
    """Call `hook` with the name of every point that is reached from now on in this process; None removes it.

    A hook may end the process, raise in place of the call, or count.
    """
    global _hook  # one process-wide switch by design
    _hook = hook


def reach(point: str) -> None:
    """Tell the installed hook that `point` is reached, e.g. `store.put` or `ledger.commit.done`."""
    if _hook is not None:
        _hook(point)
