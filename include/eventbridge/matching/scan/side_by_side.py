"""Copies pieces of texts into one Arrow column, without a Python object per piece."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.memory import PADDING, address_of, copy_bytes


def side_by_side(
    buffer: npt.NDArray[np.uint8], begin: npt.NDArray[np.int64], length: npt.NDArray[np.int64]
) -> pa.StringArray:
    """Return the pieces of a buffer, each UTF-8, as an array of strings; 31 bytes behind each must be readable."""
    ends = np.zeros(len(length) + 1, np.int32)
    np.cumsum(length, out=ends[1:])
    content = np.empty(int(ends[-1]) + PADDING, np.uint8)
    _copy(address_of(buffer), np.ascontiguousarray(begin), np.ascontiguousarray(length), address_of(content))
    return pa.StringArray.from_buffers(len(length), pa.py_buffer(ends), pa.py_buffer(content[: ends[-1]]))


@compiled
def _copy(text: int, begin: Any, length: Any, into: int) -> None:
    written = 0
    for piece in range(begin.shape[0]):
        written = copy_bytes(into, written, text, begin[piece], length[piece])
