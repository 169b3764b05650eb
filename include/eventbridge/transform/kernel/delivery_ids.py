"""Compiled code for the ids of many deliveries at once, equal to `eventbridge.event.ids.delivery_id`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.memory import address_of, copy_bytes, put_byte, put_word, word_at
from eventbridge.matching.scan.texts import Texts
from eventbridge.transform.kernel.blake2b import BLOCK, digest16


class DeliveryIds:
    """Makes the ids of deliveries; what all deliveries of a bus and of a target share is laid out once."""

    def __init__(self, bus: str, targets: Sequence[tuple[str, str]], replay_id: str = "") -> None:
        """`targets` are rule and target by name, in the order of their numbers."""
        self._head = _bytes(_field(bus))
        tails = [_field(rule) + _field(target) + _field(replay_id) for rule, target in targets]
        self._tails = _bytes(b"".join(tails))
        self._tail_starts: npt.NDArray[np.int64] = np.cumsum([0, *map(len, tails)], dtype=np.int64)

    def of(
        self, sources: Texts, event_ids: Texts, events: npt.NDArray[np.int64], targets: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.uint8]:
        """Return 16 bytes per delivery, of event number `events[i]` for target number `targets[i]`."""
        ids = np.empty((len(events), 16), np.uint8)
        longest = sum(int((each.end - each.start).max(initial=0)) for each in (sources, event_ids))
        tail = int(np.diff(self._tail_starts).max(initial=0))
        message = np.zeros(len(self._head) + longest + tail + 2 * BLOCK + 64, np.uint8)
        state = np.empty(8, np.uint64)
        _delivery_ids(
            address_of(self._head), len(self._head) - 64, address_of(self._tails), self._tail_starts,
            address_of(sources.buffer), sources.start, sources.end,
            address_of(event_ids.buffer), event_ids.start, event_ids.end,
            events, targets, address_of(message), address_of(state), address_of(ids)
        )  # fmt: skip
        return ids


def _field(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogatepass")
    return len(encoded).to_bytes(4, "big") + encoded


def _bytes(text: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text + bytes(64), np.uint8)


@compiled
def _delivery_ids(
    head: int, head_length: int, tails: int, tail_starts: Any, source: int, source_start: Any, source_end: Any,
    event_id: int, event_id_start: Any, event_id_end: Any, events: Any, targets: Any, message: int, state: int, ids: int
) -> None:  # fmt: skip
    copy_bytes(message, 0, head, 0, head_length)
    for delivery in range(events.shape[0]):
        event, target = events[delivery], targets[delivery]
        written = _put_field(message, head_length, source, source_start[event], source_end[event])
        written = _put_field(message, written, event_id, event_id_start[event], event_id_end[event])
        tail = tail_starts[target]
        written = copy_bytes(message, written, tails, tail, tail_starts[target + 1] - tail)
        digest16(message, written, state)
        put_word(ids, 2 * delivery, word_at(state, 0))
        put_word(ids, 2 * delivery + 1, word_at(state, 1))
        # Version 8 and the variant of RFC 9562.
        put_byte(ids, 16 * delivery + 6, np.int64(word_at(state, 0) >> np.uint64(48)) & 0x0F | 0x80)
        put_byte(ids, 16 * delivery + 8, np.int64(word_at(state, 1) & np.uint64(0x3F)) | 0x80)


@compiled
def _put_field(message: int, written: int, text: int, start: int, end: int) -> Any:
    length = end - start
    for shift in range(24, -1, -8):
        put_byte(message, written, length >> shift & 255)
        written += 1
    return copy_bytes(message, written, text, start, length)
