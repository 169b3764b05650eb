"""Arrow's arrays of text as one padded buffer that compiled code may read without a check for its end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.scan.memory import PADDING


class Texts(NamedTuple):
    """Text number i is `buffer[start[i]:end[i]]`; `PADDING` readable zeros follow the last byte."""

    buffer: npt.NDArray[np.uint8]
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]


def texts_of(array: pa.Array | pa.ChunkedArray) -> Texts:
    """Return the texts of an Arrow array of strings or binaries; a null is an empty text. TypeError for other arrays.

    The bytes are copied once: what Arrow hands over may end where the memory ends.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    kind = array.type
    if kind in (pa.string_view(), pa.binary_view()):
        array = array.cast(pa.large_binary())
    elif not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        if not (pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)):
            raise TypeError(f"an Arrow array of strings or binaries is expected, not of {kind}")
    if array.null_count:
        array = array.fill_null(b"" if "binary" in str(array.type) else "")
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets_buffer, data_buffer = array.buffers()
    if len(array) == 0:
        none = np.zeros(0, np.int64)
        return Texts(np.zeros(PADDING, np.uint8), none, none)
    raw: npt.NDArray[np.int64 | np.int32] = np.frombuffer(offsets_buffer, np.int64 if large else np.int32)
    offsets: npt.NDArray[np.int64] = raw[array.offset : array.offset + len(array) + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    buffer = np.empty(last - first + PADDING, np.uint8)
    if data_buffer is not None:
        buffer[: last - first] = np.frombuffer(data_buffer, np.uint8)[first:last]
    buffer[last - first :] = 0
    offsets -= first
    return Texts(buffer, offsets[:-1], offsets[1:])
