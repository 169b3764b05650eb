"""Keeps what is secret out of everything that is written down about an exchange."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

#: What encoders write otherwise than Python's do: Go's and .NET's of JSON, Jinja's and Go's of HTML.
_GO_JSON = str.maketrans({character: f"\\u{ord(character):04x}" for character in "&<>"})
_NET_JSON = str.maketrans({character: f"\\u{ord(character):04X}" for character in "\"&'+<>`"} | {"\\": "\\\\"})
_JINJA_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;"})
_GO_HTML = {**_JINJA_HTML, ord("+"): "&#43;"}

#: A shorter piece is not a secret, and would be found in every other answer.
SHORTEST_SECRET = 6


def forms_of(values: Iterable[str]) -> tuple[bytes, ...]:
    """Return the bytes as which an answer may repeat secret values, the longest first.

    As they are, escaped in a URL, in JSON and in HTML as the usual encoders do, read from a header as Latin-1 before;
    what is shorter than six characters is left out.
    """
    forms = {
        form
        for each in values
        if len(each) >= SHORTEST_SECRET
        for value in (each, each.encode(errors="surrogatepass").decode("latin-1"))
        for form in (
            value,
            quote(value),
            quote(value, safe=""),
            quote_plus(value),
            json.dumps(value)[1:-1],
            json.dumps(value, ensure_ascii=False)[1:-1],
            json.dumps(value)[1:-1].replace("/", "\\/"),  # PHP
            json.dumps(value, ensure_ascii=False)[1:-1].translate(_GO_JSON),
            _net_json(value),
            html.escape(value),
            value.translate(_JINJA_HTML),
            value.translate(_GO_HTML),
            value.replace("/", "\\/"),
        )
    }
    return tuple(sorted((form.encode(errors="surrogatepass") for form in forms), key=len, reverse=True))


def _net_json(value: str) -> str:
    units = value.translate(_NET_JSON).encode("utf-16-be", errors="surrogatepass")
    codes = (int.from_bytes(units[place : place + 2], "big") for place in range(0, len(units), 2))
    return "".join(chr(code) if code < 0x80 else f"\\u{code:04X}" for code in codes)


def veiled(text: bytes, secrets: Iterable[bytes]) -> bytes:
    """Return text with asterisks for every secret in it, which are to come the longest first; no byte moves."""
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, b"*" * len(secret))
    return text
