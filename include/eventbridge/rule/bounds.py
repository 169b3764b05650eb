"""What a rule file may cost that somebody sends, before it is one of the installation's: values, errors, bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from eventbridge.errors import RuleError, RuleFileError
from eventbridge.rule.node import Location, Node

#: Keys and values of one file: some hundreds of rules. An operator's own files have no such limit.
MOST_VALUES: Final = 50_000
MOST_BYTES: Final = 1 << 20
#: Processor time that reading it may take; regular expressions and JSONata of a few characters may take much.
MOST_SECONDS: Final = 10.0
#: Errors that are told; each may have taken a search for the nearest name.
MOST_ERRORS: Final = 200
#: Of a file of so many bytes PyYAML's slow parser is not asked for a better message.
MOST_BYTES_FOR_PLACES: Final = 1 << 16


class BoundedErrors(list[RuleError]):
    """Errors of files of which one was sent; raises RuleFileError with all of them once there are MOST_ERRORS.

    `clock` tells the processor time of whoever reads the files.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        super().__init__()
        self._clock = clock
        self._ends_at = clock() + MOST_SECONDS

    def refuse_late(self, node: Node) -> None:
        """Raise RuleFileError if what stands at a node is reached too late to be read."""
        if self._clock() > self._ends_at:
            message = f"the files take more than {MOST_SECONDS:g} s to read, and the rest is not read"
            self.append(node.error_at_key(message, "Split the file, or check it with `eventbridge rules check`"))
            raise RuleFileError(self)

    def append(self, error: RuleError) -> None:
        """Add an error."""
        super().append(error)
        if len(self) >= MOST_ERRORS:
            raise RuleFileError(self)

    def extend(self, errors: Iterable[RuleError]) -> None:
        """Add errors one by one."""
        for each in errors:
            self.append(each)


def too_long(content: bytes, file: str) -> RuleError | None:
    """Return the error of a file that is too long to be read."""
    if len(content) <= MOST_BYTES:
        return None
    message = f"the file has {len(content):,} bytes, and {MOST_BYTES:,} are the most that may be sent"
    return Location(file, 1, 1).error("$", message, "Split it")


def too_many_values(place: Location) -> RuleError:
    """Return the error of a file that holds too many values to be read on."""
    message = f"the file holds more than {MOST_VALUES:,} keys and values, which are the most that may be sent"
    return place.error("$", message, "Split it, or check it with `eventbridge rules check`")
