"""Converts payloads to lines of a JSON lines file."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import NoReturn

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

#: Validates a value without building it.
_VALIDATOR = msgspec.json.Decoder(msgspec.Raw)
#: For fewer payloads, converting them one by one is as fast as Arrow's calls for all of them.
_MIN_FOR_ARROW = 16


def json_lines(payloads: pa.Array) -> bytes | memoryview:
    """Return the concatenated `json_line` results for the payloads in an Arrow array of binaries; a null is an empty
    payload.

    Arrow joins the payloads if none of them needs a change, as is usual; a few payloads are converted one by one.
    """
    if len(payloads) < _MIN_FOR_ARROW or not _are_lines(payloads):
        return b"".join(json_line(payload or b"") for payload in payloads.to_pylist())
    return _bytes_of(
        pc.binary_join_element_wise(payloads, b"", b"\n")
    ).data  # joins each payload and an empty string with a line end


def _are_lines(payloads: pa.Array) -> bool:
    """Return whether every payload is certainly JSON without a line break."""
    if payloads.null_count or _bytes_of(payloads).min(initial=0xFF) < ord(" "):
        return False
    try:
        payloads.cast(pa.string())  # raises if a payload is not UTF-8
        for payload in views_of(payloads):
            _VALIDATOR.decode(payload)
    except (pa.ArrowInvalid, msgspec.DecodeError, RecursionError):
        return False
    return True


def views_of(payloads: pa.Array) -> Iterator[memoryview]:
    """Yield each payload in an Arrow array of binaries without copying it; a null is empty."""
    _, ends, data = payloads.buffers()
    whole = memoryview(data if data is not None else b"")
    for start, end in pairwise(np.frombuffer(ends, np.int32)[payloads.offset :][: len(payloads) + 1].tolist()):
        yield whole[start:end]


def _bytes_of(payloads: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of all payloads, which are adjacent in memory."""
    _, ends, data = payloads.buffers()
    if data is None:
        return np.zeros(0, np.uint8)
    first, last = np.frombuffer(ends, np.int32)[[payloads.offset, payloads.offset + len(payloads)]]
    return np.frombuffer(data, np.uint8)[first:last]


def json_line(payload: bytes) -> bytes:
    """Return one JSON value and a line end.

    JSON is kept byte for byte, except that line breaks between tokens become spaces.
    Other text becomes a JSON string, other bytes `{"data_base64": "..."}` (as CloudEvents 1.0 writes them).
    """
    if not _is_surely_json(payload):
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            encoded = base64.b64encode(payload).decode("ascii")
            return b'{"data_base64":"' + encoded.encode("ascii") + b'"}\n'
        if not is_json(text):
            return json.dumps(text, ensure_ascii=False).encode() + b"\n"
    if b"\n" in payload or b"\r" in payload:
        # JSON allows no raw line break inside a string, so all of them are between tokens
        payload = payload.replace(b"\r", b" ").replace(b"\n", b" ")
    return payload + b"\n"


def holds_json(payload: bytes) -> bool:
    """Return whether a payload is one JSON value in UTF-8 (RFC 8259)."""
    if _is_surely_json(payload):
        return True
    try:
        return is_json(payload.decode())
    except UnicodeDecodeError:
        return False


def _is_surely_json(payload: bytes) -> bool:
    """Return whether a fast, validating decoder accepts a payload as JSON.

    A payload that it rejects may still be JSON, because it does not accept half of a surrogate pair.
    """
    try:
        _VALIDATOR.decode(payload.decode())  # decoded here, because the decoder does not check for UTF-8
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return False
    return True


def is_json(text: str) -> bool:
    """Return whether `text` is one JSON value (RFC 8259: no NaN, nothing after it)."""
    try:
        _DECODER.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def _reject_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


# `parse_int=len`: int() would reject more than 4,300 digits
_DECODER = json.JSONDecoder(parse_int=len, parse_constant=_reject_constant)
