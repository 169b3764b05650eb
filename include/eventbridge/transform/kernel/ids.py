"""Compiled code for BLAKE2b (RFC 7693), which computes the ids of many deliveries or the identities of many events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from eventbridge.matching.scan.attributes import ID, SOURCE
from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.memory import address_of, copy_bytes, load64, put_byte, put_word, word_at
from eventbridge.matching.scan.recognised import RecognisedTexts
from eventbridge.matching.scan.texts import Texts

BLOCK: Final = 128

_IV = np.array(
    [
        0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
        0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
    ],
    np.uint64,
)  # fmt: skip
_PARAMETERS = np.uint64(0x0101_0010)  # depth 1, fanout 1, no key, 16 bytes of digest
_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)

# For each round, the order in which the words of a block are mixed in.
_SIGMA = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    ],
    np.uint64,
)


@compiled
def digest16(text: int, length: int, state: int) -> None:
    """Write the digest of `length` bytes to the first two words at `state`, which must have room for eight.

    The bytes from the end of the text to the end of its last block are set to 0.
    """
    blocks = max(1, (length + BLOCK - 1) // BLOCK)
    for index in range(length, blocks * BLOCK):
        put_byte(text, index, 0)
    for index in range(8):
        put_word(state, index, _IV[index])
    put_word(state, 0, _IV[0] ^ _PARAMETERS)
    for block in range(blocks):
        last = block == blocks - 1
        _mix_block(text + block * BLOCK, np.uint64(length if last else (block + 1) * BLOCK), last, state)


@compiled
def _mix_block(block: int, counted: Any, last: bool, state: int) -> None:
    v0, v1, v2, v3 = word_at(state, 0), word_at(state, 1), word_at(state, 2), word_at(state, 3)
    v4, v5, v6, v7 = word_at(state, 4), word_at(state, 5), word_at(state, 6), word_at(state, 7)
    v8, v9, v10, v11 = _IV[0], _IV[1], _IV[2], _IV[3]
    v12, v13, v14, v15 = _IV[4] ^ counted, _IV[5], _IV[6], _IV[7]
    if last:
        v14 = v14 ^ _ALL
    for turn in range(12):
        v0, v4, v8, v12 = _mix(v0, v4, v8, v12, _word(block, turn, 0), _word(block, turn, 1))
        v1, v5, v9, v13 = _mix(v1, v5, v9, v13, _word(block, turn, 2), _word(block, turn, 3))
        v2, v6, v10, v14 = _mix(v2, v6, v10, v14, _word(block, turn, 4), _word(block, turn, 5))
        v3, v7, v11, v15 = _mix(v3, v7, v11, v15, _word(block, turn, 6), _word(block, turn, 7))
        v0, v5, v10, v15 = _mix(v0, v5, v10, v15, _word(block, turn, 8), _word(block, turn, 9))
        v1, v6, v11, v12 = _mix(v1, v6, v11, v12, _word(block, turn, 10), _word(block, turn, 11))
        v2, v7, v8, v13 = _mix(v2, v7, v8, v13, _word(block, turn, 12), _word(block, turn, 13))
        v3, v4, v9, v14 = _mix(v3, v4, v9, v14, _word(block, turn, 14), _word(block, turn, 15))
    put_word(state, 0, word_at(state, 0) ^ v0 ^ v8)
    put_word(state, 1, word_at(state, 1) ^ v1 ^ v9)
    put_word(state, 2, word_at(state, 2) ^ v2 ^ v10)
    put_word(state, 3, word_at(state, 3) ^ v3 ^ v11)
    put_word(state, 4, word_at(state, 4) ^ v4 ^ v12)
    put_word(state, 5, word_at(state, 5) ^ v5 ^ v13)
    put_word(state, 6, word_at(state, 6) ^ v6 ^ v14)
    put_word(state, 7, word_at(state, 7) ^ v7 ^ v15)


@compiled
def _word(block: int, turn: int, position: int) -> Any:
    return load64(block, np.int64(_SIGMA[turn, position]) * 8)


@compiled
def _mix(a: Any, b: Any, c: Any, d: Any, x: Any, y: Any) -> Any:
    a = a + b + x
    d = _rotate(d ^ a, np.uint64(32))
    c = c + d
    b = _rotate(b ^ c, np.uint64(24))
    a = a + b + y
    d = _rotate(d ^ a, np.uint64(16))
    c = c + d
    b = _rotate(b ^ c, np.uint64(63))
    return a, b, c, d


@compiled
def _rotate(word: Any, count: Any) -> Any:
    return word >> count | word << (np.uint64(64) - count)


class DeliveryIds:
    """Computes the ids of deliveries; the parts that the ids of a bus or a target share are prepared once."""

    def __init__(self, bus: str, targets: Sequence[tuple[str, str]], replay_id: str = "") -> None:
        """`targets` are pairs of rule and target, in the order of their numbers."""
        self._head = _bytes(_field(bus))
        tails = [_field(rule) + _field(target) + _field(replay_id) for rule, target in targets]
        self._tails = _bytes(b"".join(tails))
        self._tail_starts: npt.NDArray[np.int64] = np.cumsum([0, *map(len, tails)], dtype=np.int64)

    def compute(
        self, sources: Texts, event_ids: Texts, events: npt.NDArray[np.int64], targets: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.uint8]:
        """Return 16 bytes for each delivery i, which is of event number `events[i]` for target number `targets[i]`."""
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


#: The room for a length in decimal digits and a colon.
_LENGTH: Final = 20
_ZERO, _COLON = ord("0"), ord(":")


def identities_of(buffer: npt.NDArray[np.uint8], found: RecognisedTexts) -> npt.NDArray[np.uint8]:
    """Return the identity of each event, 16 bytes; those of a text that is not recognised are meaningless."""
    identities = np.empty((len(found.sure), 16), np.uint8)
    longest = int(found.length[:, ID].max(initial=0)) + int(found.length[:, SOURCE].max(initial=0))
    message, state = np.zeros(_LENGTH + longest + 2 * BLOCK, np.uint8), np.empty(8, np.uint64)
    _identities(
        address_of(buffer), found.begin, found.length, address_of(message), address_of(state), address_of(identities)
    )
    return identities


@compiled
def _identities(text: int, begin: Any, length: Any, message: int, state: int, identities: int) -> None:
    for event in range(begin.shape[0]):
        written = _put_number(message, length[event, SOURCE])
        put_byte(message, written, _COLON)
        written = copy_bytes(message, written + 1, text, begin[event, SOURCE], length[event, SOURCE])
        written = copy_bytes(message, written, text, begin[event, ID], length[event, ID])
        digest16(message, written, state)
        put_word(identities, 2 * event, word_at(state, 0))
        put_word(identities, 2 * event + 1, word_at(state, 1))


@compiled
def _put_number(into: int, number: int) -> int:
    """Write a number in decimal digits; return the position after them."""
    size, left = 1, number // 10
    while left > 0:
        size += 1
        left //= 10
    for position in range(size - 1, -1, -1):
        put_byte(into, position, _ZERO + number % 10)
        number //= 10
    return size
