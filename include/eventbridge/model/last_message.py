"""The last message that a consumer group took of a partition: what tells its log from one that was made again."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_TEXT: Final = re.compile(r"([0-9]+)@(-?[0-9]+)")


class LastMessage(NamedTuple):
    """Its offset, and when the bus took it, in microseconds since 1970: a log made again has another one there."""

    offset: int
    time: int

    @property
    def text(self) -> str:
        """Return it as the ledger keeps it."""
        return f"{self.offset}@{self.time}"


def last_message_of(text: str) -> LastMessage | None:
    """Return what a text of the ledger says, None for one that is none, such as the identity of a log."""
    found = _TEXT.fullmatch(text)
    return None if found is None else LastMessage(int(found[1]), int(found[2]))
