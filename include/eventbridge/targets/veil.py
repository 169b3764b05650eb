"""Keeps what is secret out of everything that is written down about an exchange."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

#: A shorter piece is no secret, and would be found in every other answer.
SHORTEST_SECRET = 6


def forms_of(values: Iterable[str]) -> tuple[bytes, ...]:
    """Return the bytes as which an answer may repeat secret values, the longest first.

    As they are, escaped in a URL, in JSON and in HTML; what is shorter than six characters is left out.
    """
    forms = {
        form
        for value in values
        if len(value) >= SHORTEST_SECRET
        for form in (
            value,
            quote(value, safe=""),
            quote_plus(value),
            json.dumps(value)[1:-1],
            json.dumps(value, ensure_ascii=False)[1:-1],
            html.escape(value),
            value.replace("/", "\\/"),
        )
    }
    return tuple(sorted((form.encode(errors="surrogatepass") for form in forms), key=len, reverse=True))


def veiled(text: bytes, secrets: Iterable[bytes]) -> bytes:
    """Return text with asterisks for every secret in it, which are to come the longest first; no byte moves."""
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, b"*" * len(secret))
    return text
