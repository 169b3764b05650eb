"""Checks messages one by one: whether each is strictly a CloudEvent, and whether it is new in its batch."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa

from eventbridge.errors import EventError
from eventbridge.event.cloudevent import parse_event
from eventbridge.event.recognise import recognise
from eventbridge.store.columns import listed, strings

#: Bytes of an event's identity.
IDENTITY_BYTES: Final = 16


@dataclass(frozen=True)
class CheckResult:
    """The result of the checks of a file's messages, in their order.

    `columns` are the columns of schema BUFFER that the checks decide, with dictionary-coded texts except `event_id`.
    `types` has the type of each event, or None. `counts` is the number of messages by status, and `identities` has
    those of the valid events.
    """

    columns: Mapping[str, pa.Array]
    types: Sequence[str | None]
    counts: Mapping[str, int]
    identities: set[bytes]


#: Takes (bodies, reasons of refused rows, known identities, maximum size of an event in bytes), returns the result.
Check: TypeAlias = Callable[[pa.ChunkedArray, Mapping[int, str], AbstractSet[bytes], int], CheckResult]


def check_one_by_one(
    bodies: pa.ChunkedArray, refused: Mapping[int, str], seen: AbstractSet[bytes], max_bytes: int
) -> CheckResult:
    """Check each message by itself; an event is a duplicate if its identity is in `seen` or came earlier."""
    rows = CheckedRows(seen)
    for row, body in enumerate(bodies.to_pylist()):
        if row in refused:
            rows.add_malformed(refused[row])
        else:
            rows.add_message(body, max_bytes)
    return rows.checked()


@dataclass
class CheckedRows:
    """Collects the rows of checked messages, one after the other."""

    seen: AbstractSet[bytes]
    _statuses: list[str] = field(default_factory=list)
    _event_ids: list[str | None] = field(default_factory=list)
    _sources: list[str | None] = field(default_factory=list)
    _types: list[str | None] = field(default_factory=list)
    _reasons: list[str | None] = field(default_factory=list)
    _identities: set[bytes] = field(default_factory=set)

    def add_message(self, body: bytes | None, max_bytes: int) -> None:
        """Check a message and add its row; one without a body is a tombstone."""
        if body is None:
            self._add("tombstone", None, None, None, None)
            return
        try:
            event_id, source, type_ = names_of(body, max_bytes)
        except EventError as error:
            self.add_malformed(str(error))
        else:
            self.add_event(event_id, source, type_, identity_of(source, event_id))

    def add_event(self, event_id: str, source: str, type_: str, identity: bytes) -> None:
        """Add an event, as a duplicate if its identity is known."""
        known = identity in self._identities or identity in self.seen
        if not known:
            self._identities.add(identity)
        self._add("duplicate" if known else "valid", event_id, source, type_, None)

    def add_malformed(self, reason: str) -> None:
        """Add a message that is not an event."""
        self._add("malformed", None, None, None, reason)

    def checked(self) -> CheckResult:
        """Return the result for all rows that were added."""
        columns = {
            "status": listed(self._statuses),
            "reason": listed(self._reasons),
            "event_id": strings(self._event_ids),
            "source": listed(self._sources),
            "type": listed(self._types),
        }
        return CheckResult(columns, self._types, Counter(self._statuses), self._identities)

    def _add(
        self, status: str, event_id: str | None, source: str | None, type_: str | None, reason: str | None
    ) -> None:
        self._statuses.append(status)
        self._event_ids.append(event_id)
        self._sources.append(source)
        self._types.append(type_)
        self._reasons.append(reason)


def names_of(body: bytes, max_bytes: int) -> tuple[str, str, str]:
    """Return id, source and type of an event of at most `max_bytes`; raises EventError if it is not an event."""
    found = recognise(body, max_bytes=max_bytes)
    if found is not None:
        return found
    event = parse_event(body, max_bytes=max_bytes)
    return event.id, event.source, event.type


def identity_of(source: str, event_id: str) -> bytes:
    """Return the identity that all events with one source and id share, and no others."""
    # 16 bytes instead of the texts: a batch of half a million events must fit into the memory of one task.
    text = f"{len(source)}:{source}{event_id}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=IDENTITY_BYTES).digest()
