"""Texts in memory as compiled code takes them: by address, with padding behind them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eventbridge.matching.scan.memory import PADDING, address_of


class Raw:
    """A text, or room, that stays where it is as long as this object lives."""

    def __init__(self, content: bytes) -> None:
        self.array: npt.NDArray[np.uint8] = np.frombuffer(bytearray(content + bytes(PADDING)), np.uint8)
        self.address = address_of(self.array)
        self.length = len(content)

    def taken(self, length: int) -> bytes:
        """Return the first bytes."""
        return self.array[:length].tobytes()
