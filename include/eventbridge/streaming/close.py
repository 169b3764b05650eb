"""The close of a batch in streaming mode, in its own thread, while the next batch takes events."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from eventbridge.streaming.target_queues import TargetQueues


@dataclass
class BatchClose:
    """A batch that `close` closes, and its targets."""

    targets: TargetQueues | None  # None: another process closes it
    close: Callable[[], None]
    _end: Future[None] = field(default_factory=Future)

    def __post_init__(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="close", daemon=True).start()

    @property
    def is_done(self) -> bool:
        """Whether it has ended, with or without an error."""
        return self._end.done()

    def result(self) -> None:
        """Wait until it has ended; raises its error."""
        self._end.result()

    def wait(self) -> None:
        """Wait until it has ended, with or without an error."""
        self._end.exception()

    def _run(self) -> None:
        try:
            self.close()
        except BaseException as error:
            self._end.set_exception(error)
        else:
            self._end.set_result(None)
