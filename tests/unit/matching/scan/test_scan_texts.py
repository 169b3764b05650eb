"""Arrow's arrays of text of every kind, also slices and chunks, come as their bytes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from eventbridge.matching.scan.memory import PADDING
from eventbridge.matching.scan.texts import TextBuffer, texts_of

TEXTS = ["", "a", "é😀" * 20, None, "{}", ""]
KINDS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view(), pa.binary_view()]


def contents(array: Any) -> list[bytes]:
    """Return the texts of an array as compiled code gets them."""
    texts = texts_of(array)
    block = TextBuffer().take(texts, 0, len(texts.start))
    end = int(block.end[-1]) if len(block.end) else 0

    assert block.buffer[end : end + PADDING].tobytes() == bytes(PADDING)
    return [block.buffer[start:stop].tobytes() for start, stop in zip(block.start, block.end, strict=True)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_kind_of_text_is_read(kind: pa.DataType) -> None:
    """A null is an empty text; a slice holds its own texts only; chunks are one array."""
    listed = [text if text is None or "string" in str(kind) else text.encode() for text in TEXTS]
    array = pa.array(listed, kind)
    expected = [(text or "").encode() for text in TEXTS]

    assert contents(array) == expected
    assert contents(array[2:5]) == expected[2:5]
    assert contents(array[1:1]) == []
    assert contents(pa.chunked_array([array[:2], array[2:]])) == expected
    assert contents(pa.array(["", ""], pa.string())) == [b"", b""]
    assert contents(pa.array([None, None], kind)) == [b"", b""]


def test_a_value_that_is_no_text_is_refused() -> None:
    """Numbers are not events."""
    with pytest.raises(TypeError, match="int64"):
        texts_of(pa.array([1]))
