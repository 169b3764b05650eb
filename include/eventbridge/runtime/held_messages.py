"""Keeps messages of a queue invisible to others while they are taken over."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from eventbridge.errors import BusError
from eventbridge.sources.protocol import QueueSource

log = logging.getLogger(__name__)


class HeldMessages:
    """Extends the visibility timeout of messages while the block runs, so that no other consumer gets them."""

    def __init__(self, source: QueueSource, receipts: Sequence[str]) -> None:
        self.receipts = list(receipts)  # those that count now; read them after the block
        self._source = source
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._extend, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        self._thread.join()

    def _extend(self) -> None:
        while not self._done.wait(self._source.visibility_timeout / 3):
            try:
                self.receipts = self._source.extend(self.receipts)
            except BusError as error:  # a message that comes again is known by its id
                log.warning("messages that are held may come again: %s", error)
