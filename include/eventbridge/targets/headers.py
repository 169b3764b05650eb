"""The header lines of a delivery; headers that HTTP cannot carry, or that events must not set, are refused."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# RFC 9110, 5.5: a line break or NUL in a value would let an event write headers, or a request, of its own
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

#: Set by the target itself or by HTTP clients and proxies: framing, credentials, hop-by-hop headers.
_OWN = frozenset(
    {
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)


_OWN_PREFIXES = ("proxy-", "webhook-")


class HeaderRefused(Exception):
    """A header that cannot be sent; the message shows its name, not its value."""


def is_reserved(name: str) -> bool:
    """Return whether only the target itself may set a header, in any case."""
    lower = name.lower()
    return lower in _OWN or lower.startswith(_OWN_PREFIXES)


def header_line(name: str, value: str) -> str | bytes:
    """Return one header for libcurl (bytes if not ASCII); raises HeaderRefused."""
    if not _NAME.fullmatch(name):
        raise HeaderRefused(f"{name[:100]!r} is not a header name")
    if _FORBIDDEN.search(value):
        raise HeaderRefused(f"header {name!r} holds a line break or control character")
    line = f"{name}: {value}" if value.strip() else f"{name};"  # "name:" would remove a header, "name;" sends it empty
    if line.isascii():
        return line
    try:
        return line.encode()
    except UnicodeEncodeError:
        raise HeaderRefused(f"header {name!r} holds half a surrogate pair") from None


def event_lines(headers: Mapping[str, str]) -> list[str | bytes]:
    """Return the lines for headers of an event; `traceparent` is left to the target.

    Raises HeaderRefused for one that HTTP cannot carry or that the target sets itself.
    """
    lines: list[str | bytes] = []
    for name, value in headers.items():
        if is_reserved(name):
            raise HeaderRefused(f"header {name!r} is set by the target, not by an event")
        if name.lower() != "traceparent":
            lines.append(header_line(name, value))
    return lines
