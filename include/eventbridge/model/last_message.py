"""The last message that a consumer group took from a partition; it distinguishes the log from a recreated one."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_TEXT: Final = re.compile(r"([0-9]+)@(-?[0-9]+)")


class LastMessage(NamedTuple):
    """Its offset, and when the bus accepted it, in microseconds since 1970; a recreated log has another one there."""

    offset: int
    time: int

    @property
    def text(self) -> str:
        """Return it as the text that the ledger stores."""
        return f"{self.offset}@{self.time}"


def last_message_of(text: str) -> LastMessage | None:
    """Return the last message of a text of the ledger; None for another text, such as the identity of a log."""
    found = _TEXT.fullmatch(text)
    return None if found is None else LastMessage(int(found[1]), int(found[2]))
