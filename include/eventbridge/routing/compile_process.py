"""Compiles the matcher in a separate process, for callers that cannot wait for minutes, such as calls of the API.

That process stores the compiled code on disk (`eventbridge.matching.scan.compiled`), where this process finds it.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from eventbridge.child_process import Child, ChildEnded, ChildLate, Children, open_pipes
from eventbridge.errors import InfrastructureError
from eventbridge.routing.warm_up import compile_ahead

#: The number of seconds that a caller waits. A process that finds the compiled code on disk needs only seconds, even on
#: a busy machine.
WAIT_SECONDS: Final = 40.0
#: The maximum address space of the process, most of which it never uses. It need not be tight because the code is our
#: own.
_ADDRESS_BYTES: Final = 16 << 30
_COMPILED: Final = b"C"
#: The variables that name the folder of compiled code and the processor for which it is compiled. None of them is
#: secret.
_VARIABLES: Final = ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")


class MatcherCompilation:
    """Starts the process that compiles the matcher, and waits for it. The class is thread-safe."""

    def __init__(self, children: Children) -> None:
        self._children = children
        self._child: Child | None = None
        self._is_done = False
        self._lock = threading.Lock()

    def wait(self, seconds: float = WAIT_SECONDS) -> None:
        """Wait up to `seconds` until a process has compiled the matcher; the process continues after that time.

        Raises InfrastructureError if the matcher is not compiled by then or cannot be compiled, and the error of a
        cancelled call.
        """
        ends_at = time.monotonic() + seconds
        while not self._is_compiled():
            if time.monotonic() > ends_at:
                raise InfrastructureError(
                    "the matcher is not compiled yet. A process is compiling it now, once for each installation and "
                    "version, which takes up to three minutes: send the call again after that. To avoid this, run "
                    "`eventbridge compile` when you install EventBridge or build its image. Nothing was changed"
                )

    def _is_compiled(self) -> bool:
        """Start the process unless it is running, and wait for it briefly."""
        with self._lock:
            if self._is_done:
                return True
            self._child = self._child or self._children.start()
            try:
                self._child.read(len(_COMPILED), 0.0)
            except ChildLate:
                return False
            except ChildEnded:
                self._child.end()
                self._child = None
                raise InfrastructureError(
                    "the matcher cannot be compiled: the process that compiles it ended too early. "
                    "`eventbridge compile` shows the reason. Nothing was changed"
                ) from None
            self._child.end()
            self._is_done = True
            return True


#: The compilation that all callers in this process share.
compilation: Final = MatcherCompilation(
    Children("eventbridge.routing.compile_process", "compiles the matcher", variables=_VARIABLES)
)


def main() -> None:
    """Compile the matcher, and report to the parent process that it is compiled."""
    _, responses = open_pipes(_ADDRESS_BYTES)
    compile_ahead()
    responses.write(_COMPILED)
    responses.flush()
