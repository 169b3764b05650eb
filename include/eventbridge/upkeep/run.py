"""One run of retention: its time, whether it may change anything, and its result."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from eventbridge.model.storage import Kept
from eventbridge.runtime.runtime import Runtime


@dataclass
class Maintained:
    """What a run removed, or would remove in a dry run; `finished`: nothing more is to be done now.

    `batches` counts pruned batches by part; `kept`, by reason, batches that are past their retention and stay. Files
    include those of no batch; `lost_files` are files without a ledger row. `store_bytes`: the size of the store, if it
    has a quota and was measured.
    """

    dry_run: bool = False
    batches: Counter[Kept] = field(default_factory=Counter)
    files: int = 0
    lost_files: int = 0
    rows: int = 0
    rule_changes: int = 0
    requests: int = 0
    messages: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    finished: bool = True
    store_bytes: int | None = None


class Run:
    """The shared state of a run's parts."""

    def __init__(self, runtime: Runtime, seconds: float, *, dry_run: bool) -> None:
        self.runtime = runtime
        self.now: datetime = runtime.ledger.now()
        self.dry_run = dry_run
        self.done = Maintained(dry_run=dry_run)
        self._until = time.monotonic() + seconds
        self._progressed = False

    def progressed(self) -> None:
        """Record that some work was done: from now on the run ends when its time is over."""
        self._progressed = True

    def is_over(self) -> bool:
        """Return whether to leave further work to the next run; never before some work was done."""
        over = self._progressed and time.monotonic() >= self._until
        if over:
            self.done.finished = False
        return over

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files from the store, unless it is a dry run, and count them."""
        if paths and not self.dry_run:
            self.runtime.store.delete_all(paths)
        self.done.files += len(paths)
