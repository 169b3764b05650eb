"""The close of a window of the express lane, in a thread of its own: events go on in the next window meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from eventbridge.model.batch import Batch
from eventbridge.model.queue import Queue
from eventbridge.stages.operate.express_targets import TargetQueues


@dataclass
class Close:
    """A window that is being closed: its batch, its targets, and up to where it read, as the next one begins there.

    `work` does the books and returns the batch that was opened then; None: none may be opened now.
    """

    batch: Batch
    ends: Mapping[Queue, int]
    targets: TargetQueues | None  # None: another process closes it
    work: Callable[[], Batch | None]
    _next: Future[Batch | None] = field(default_factory=Future)

    def __post_init__(self) -> None:
        """Begin."""
        threading.Thread(target=self._run, name="close", daemon=True).start()

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._next.done()

    def next_batch(self) -> Batch | None:
        """Wait until it has ended and return the batch that was opened; raises what it was ended by."""
        return self._next.result()

    def wait(self) -> None:
        """Wait until it has ended, well or not."""
        self._next.exception()

    def _run(self) -> None:
        try:
            self._next.set_result(self.work())
        except BaseException as error:
            self._next.set_exception(error)
