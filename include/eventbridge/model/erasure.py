"""Defines what an erasure leaves of an event: marks in the rows, and a record in the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

#: The id, source and type of an erased event. Its own id may name a person, and so may the id's source.
ERASED_ID: Final = "erased"
ERASED_SOURCE: Final = "urn:eventbridge:erased"
ERASED_TYPE: Final = "eventbridge.erased"

#: The body of an erased event: a valid event, so that every reader of the archive can still read it.
ERASED_BODY: Final = (
    f'{{"specversion":"1.0","id":"{ERASED_ID}","source":"{ERASED_SOURCE}","type":"{ERASED_TYPE}"}}'.encode()
)

#: The text that replaces an error, a detail or a response which may quote the event.
ERASED_TEXT: Final = "erased"


def is_erased(record: Mapping[str, object]) -> bool:
    """Return whether a row with the columns `source` and `event_id` is of an erased event."""
    return record["event_id"] == ERASED_ID and record["source"] == ERASED_SOURCE


@dataclass(frozen=True)
class Erasure:
    """What an erasure changed, or would change; `rows` counts the changed rows by the topmost folder of their files.

    `messages` counts messages of embedded buses, by bus. `brokers` names the buses whose brokers may still have
    the events, and `targets` the targets for which deliveries were made, as `<rule>/<target>`.
    """

    dry_run: bool
    erasure_id: str
    events: int
    files: int
    rows: Mapping[str, int] = field(default_factory=dict)
    messages: Mapping[str, int] = field(default_factory=dict)
    brokers: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
