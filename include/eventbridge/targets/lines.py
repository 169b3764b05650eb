"""One payload as one line of a JSON lines file."""

from __future__ import annotations

import base64
import json
from typing import NoReturn

from pydantic_core import from_json

#: Beyond this a number of so many digits would take jiter longer than the decoder, which only counts them.
_FAST_BYTES = 64 * 1024


def json_line(payload: bytes) -> bytes:
    """Return one JSON value and a line end.

    JSON is kept as it is, byte for byte, but for line breaks between its tokens, which become spaces.
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
        # JSON allows no raw line break inside a string: those there are stand between tokens
        payload = payload.replace(b"\r", b" ").replace(b"\n", b" ")
    return payload + b"\n"


def _is_surely_json(payload: bytes) -> bool:
    """Return whether a parser that is three times faster takes it; what it refuses may be JSON all the same.

    It knows no half of a surrogate pair, and no nesting beyond 200.
    """
    if len(payload) > _FAST_BYTES:
        return False
    try:
        from_json(payload, allow_inf_nan=False, cache_strings="none")
    except ValueError:
        return False
    return True


def is_json(text: str) -> bool:
    """Return whether a text is one JSON value (RFC 8259: no NaN, nothing after it)."""
    try:
        _DECODER.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


# int() would refuse more than 4,300 digits
_DECODER = json.JSONDecoder(parse_int=len, parse_constant=_no_number)
