"""What a rule file may cost that somebody sends, before it is one of the installation's: values, mistakes, bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eventbridge.errors import Mistake, RuleFileError
from eventbridge.rule.node import Location

#: Keys and values of one file: some hundreds of rules. An operator's own files have no such limit.
MOST_VALUES: Final = 50_000
MOST_BYTES: Final = 1 << 20
#: Mistakes that are told; each may have taken a search for the nearest name.
MOST_MISTAKES: Final = 200
#: Of a file of so many bytes PyYAML's slow parser is not asked for a better message.
MOST_BYTES_FOR_PLACES: Final = 1 << 16


class BoundedMistakes(list[Mistake]):
    """Mistakes of files of which one was sent; raises RuleFileError with all of them once there are MOST_MISTAKES."""

    def append(self, mistake: Mistake) -> None:
        """Add a mistake."""
        super().append(mistake)
        if len(self) >= MOST_MISTAKES:
            raise RuleFileError(self)

    def extend(self, mistakes: Iterable[Mistake]) -> None:
        """Add mistakes one by one."""
        for each in mistakes:
            self.append(each)


def too_long(content: bytes, file: str) -> Mistake | None:
    """Return the mistake of a file that is too long to be read."""
    if len(content) <= MOST_BYTES:
        return None
    message = f"the file has {len(content):,} bytes, and {MOST_BYTES:,} are the most that may be sent"
    return Location(file, 1, 1).mistake("$", message, "Split it")


def too_many_values(place: Location) -> Mistake:
    """Return the mistake of a file that holds too many values to be read on."""
    message = f"the file holds more than {MOST_VALUES:,} keys and values, which are the most that may be sent"
    return place.mistake("$", message, "Split it, or check it with `eventbridge rules check`")
