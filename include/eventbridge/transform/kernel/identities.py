"""Compiled code for the identities of many events at once, equal to `stages.ingest.checked.identity_of`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from eventbridge.matching.scan.attributes import ID, SOURCE
from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.memory import address_of, copy_bytes, put_byte, put_word, word_at
from eventbridge.matching.scan.recognised import RecognisedTexts
from eventbridge.transform.kernel.blake2b import BLOCK, digest16

#: Digits of the longest length, and a colon.
_LENGTH: Final = 20
_ZERO, _COLON = ord("0"), ord(":")


def identities_of(buffer: npt.NDArray[np.uint8], found: RecognisedTexts) -> npt.NDArray[np.uint8]:
    """Return 16 bytes per text, which mean nothing of one that is not recognised."""
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
    """Write a number in decimal digits from the beginning on; return the position behind them."""
    size, left = 1, number // 10
    while left > 0:
        size += 1
        left //= 10
    for place in range(size - 1, -1, -1):
        put_byte(into, place, _ZERO + number % 10)
        number //= 10
    return size
