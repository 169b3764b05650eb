"""What was fetched of a partition ahead of its reader, and up to where; for buses that are followed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

#: So many bytes of messages are kept for a reader that does not take them; then no more is fetched.
MOST_BYTES: Final = 8 << 20

Message = TypeVar("Message")


class _FetchedMessage(NamedTuple, Generic[Message]):
    offset: int
    size: int
    message: Message


@dataclass
class FetchedMessages(Generic[Message]):
    """Messages of a partition from offset `begin` on, before `end`; an offset between them without one has none."""

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
        """Note that there is nothing more before an offset."""
        self.end = max(self.end, end)

    def holds(self, start: int, end: int) -> bool:
        """Return whether everything of a range was fetched and is still here."""
        return self.begin <= start and end <= self.end

    def take(self, start: int, end: int) -> list[Message]:
        """Return the messages of a range, and forget what lies before it."""
        self.begin = max(self.begin, start)
        while self._kept and self._kept[0].offset < start:
            self.size -= self._kept.popleft().size
        found = []
        for kept in self._kept:
            if kept.offset >= end:
                break
            found.append(kept.message)
        return found
