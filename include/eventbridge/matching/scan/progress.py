"""Reports the progress of compilation in this process. It does not import Numba, which takes a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

#: The interval between log lines about a compilation, and between checks whether one is in progress, in seconds.
_REPORT_SECONDS = 10.0
_POLL_SECONDS = 1.0


@dataclass
class CompileProgress:
    """The number of functions that run compiled in this process, and the names of those that it compiled itself."""

    functions: int = 0
    compiled: set[str] = field(default_factory=set)


#: The progress of this process; `eventbridge.matching.scan.compiled` updates it.
PROGRESS = CompileProgress()


@contextmanager
def telling_progress(say: Callable[[str], None], progress: CompileProgress = PROGRESS) -> Iterator[None]:
    """Report every 10 s how far the compilation in the body is, and at its end how many functions were compiled.

    Nothing is reported if the compiled code is already on disk. `say` is also called from another thread.
    """
    begun, before = time.monotonic(), len(progress.compiled)
    ended = threading.Event()

    def watch() -> None:
        reported_at: float | None = None
        while not ended.wait(_POLL_SECONDS):
            now = time.monotonic()
            if len(progress.compiled) > before and (reported_at is None or now - reported_at >= _REPORT_SECONDS):
                reported_at = now
                say(sentence(len(progress.compiled), progress.functions, now - begun))

    thread = threading.Thread(target=watch, name="compile-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if len(progress.compiled) > before:
            say(f"the compiled matcher is stored on disk (functions: {len(progress.compiled) - before})")


def sentence(compiled: int, functions: int, seconds: float) -> str:
    """Return the log line about a compilation in progress."""
    return (
        f"compiling the matcher, once for each installation: {compiled} of {functions} functions after {seconds:.0f} s"
    )
