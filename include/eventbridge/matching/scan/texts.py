"""Arrow's arrays of text, a block at a time: in place, or copied if the memory after them may not be readable."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.memory import PADDING, address_of, copy_bytes


class Texts(NamedTuple):
    """Texts in one buffer: number i is `buffer[start[i]:end[i]]`."""

    buffer: npt.NDArray[np.uint8]
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]


def texts_of(array: pa.Array | pa.ChunkedArray) -> Texts:
    """Return the texts of an Arrow array of strings or binaries, in place if possible; a null is an empty text.

    Raises TypeError for other arrays. The memory after the buffer may not be readable, so compiled code must read it
    through a `TextBuffer`.
    """
    if not isinstance(array, (pa.Array, pa.ChunkedArray)):
        raise TypeError(f"an Arrow array is expected, not {type(array).__name__}: convert it with pa.array")
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_null(array.type):
        array = array.cast(pa.string())
    kind = array.type
    if kind in (pa.string_view(), pa.binary_view()):
        array = array.cast(pa.large_binary())
    elif not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        if not (pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)):
            raise TypeError(f"an Arrow array of strings or binaries is expected, not of {kind}: cast it to pa.string()")
    if array.null_count:
        array = array.fill_null(b"" if "binary" in str(array.type) else "")
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets_buffer, data_buffer = array.buffers()
    if len(array) == 0 or data_buffer is None:
        nothing = np.zeros(len(array), np.int64)
        return Texts(np.zeros(0, np.uint8), nothing, nothing)
    raw: npt.NDArray[np.int64 | np.int32] = np.frombuffer(offsets_buffer, np.int64 if large else np.int32)
    offsets: npt.NDArray[np.int64] = raw[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return Texts(np.frombuffer(data_buffer, np.uint8), offsets[:-1], offsets[1:])


def padded_texts(array: pa.Array | pa.ChunkedArray) -> Texts:
    """Return what `texts_of` returns, in a copy that compiled code may read: `PADDING` zeros follow the last."""
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    zeros = pa.array([bytes(PADDING)], pa.binary()).cast(array.type)
    texts = texts_of(pa.concat_arrays([*chunks, zeros]))
    return Texts(texts.buffer, texts.start[:-1], texts.end[:-1])


class TextBuffer:
    """Provides blocks of texts with readable memory after them: in place, or copied to its buffer."""

    def __init__(self) -> None:
        self._buffer = np.zeros(PADDING, np.uint8)

    @property
    def size(self) -> int:
        """The size of the buffer in bytes."""
        return len(self._buffer)

    def take(self, texts: Texts, first: int, last: int) -> Texts:
        """Return texts number `first` to `last` (excluded), which must be adjacent in their buffer.

        `PADDING` bytes of any value can be read after the last one. The result is valid until the next call.
        """
        begin, end = (int(texts.start[first]), int(texts.end[last - 1])) if first < last else (0, 0)
        if end + PADDING <= len(texts.buffer):
            return Texts(texts.buffer, texts.start[first:last], texts.end[first:last])
        if len(self._buffer) < end - begin + PADDING:
            self._buffer = np.empty(2 * (end - begin) + PADDING, np.uint8)
        self._buffer[: end - begin] = texts.buffer[begin:end]
        self._buffer[end - begin : end - begin + PADDING] = 0
        return Texts(self._buffer, texts.start[first:last] - begin, texts.end[first:last] - begin)


def side_by_side(
    buffer: npt.NDArray[np.uint8], begin: npt.NDArray[np.int64], length: npt.NDArray[np.int64]
) -> pa.StringArray:
    """Return pieces of a buffer, which must be UTF-8, as an array of strings; 31 bytes after each must be readable."""
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
