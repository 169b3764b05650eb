"""The progress of compiling this process's functions; does not import Numba, which takes a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

#: The time between two sentences about a compilation in progress, and between two looks at it, in seconds.
_REPORT_SECONDS = 10.0
_POLL_SECONDS = 1.0


@dataclass
class CompileProgress:
    """The functions of this process that are to run compiled, and those that it compiled itself."""

    functions: int = 0
    compiled: set[str] = field(default_factory=set)


#: Of this process; `eventbridge.matching.scan.compiled` writes it.
PROGRESS = CompileProgress()


@contextmanager
def telling_progress(say: Callable[[str], None], progress: CompileProgress = PROGRESS) -> Iterator[None]:
    """Say every 10 s how far the compilation is, if the body compiles, and at its end how long it took.

    If the code is already on disk, nothing is reported. `say` is called from another thread.
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
            say(f"the compiled matcher is kept on disk (functions: {len(progress.compiled) - before})")


def sentence(compiled: int, functions: int, seconds: float) -> str:
    """Return the log line for the time while functions are compiled."""
    return (
        f"compiling the matcher, once for each installation: {compiled} of {functions} functions after {seconds:.0f} s"
    )
