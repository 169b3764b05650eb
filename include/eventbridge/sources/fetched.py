"""Holds messages of a partition that were fetched ahead of its reader. Logs that are followed use it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

#: Fetching pauses while at least this many bytes wait for the reader.
MAX_BYTES: Final = 8 << 20

Message = TypeVar("Message")


class _FetchedMessage(NamedTuple, Generic[Message]):
    offset: int
    size: int
    message: Message


@dataclass
class FetchedMessages(Generic[Message]):
    """The messages of a partition with begin <= offset < end; an offset without a message is a gap."""

    begin: int
    end: int
    size: int = 0
    _kept: deque[_FetchedMessage[Message]] = field(default_factory=deque)

    def put(self, offset: int, size: int, message: Message) -> None:
        """Add the next message."""
        self._kept.append(_FetchedMessage(offset, size, message))
        self.size += size
        self.end = max(self.end, offset + 1)

    def reach(self, end: int) -> None:
        """Record that every message before `end` was added."""
        self.end = max(self.end, end)

    def holds(self, start: int, end: int) -> bool:
        """Return whether a whole range was fetched and is still cached."""
        return self.begin <= start and end <= self.end

    def take(self, start: int, end: int) -> list[Message]:
        """Return the messages of a range, and drop those before it."""
        self.begin = max(self.begin, start)
        while self._kept and self._kept[0].offset < start:
            self.size -= self._kept.popleft().size
        found = []
        for kept in self._kept:
            if kept.offset >= end:
                break
            found.append(kept.message)
        return found
