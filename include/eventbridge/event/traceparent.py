"""The CloudEvents extension `traceparent`: the W3C trace context that an event brings."""

from __future__ import annotations

import re
from typing import Final

#: The extension's name, that of the header too.
TRACEPARENT: Final = "traceparent"
_WHOLE = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def is_traceparent(text: object) -> bool:
    """Return whether a value is a W3C `traceparent` of version 00."""
    return isinstance(text, str) and _WHOLE.fullmatch(text) is not None
