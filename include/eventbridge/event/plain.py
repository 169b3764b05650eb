"""Values as plain JSON types, for the output of the command line with `--json` and the responses of the API."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from eventbridge.event.json_document import Number


def plain(value: Any) -> Any:
    """Return a value as plain JSON types, with `Number` where digits must not change."""
    if isinstance(value, str | Number):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return text(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, Iterable) else value


def text(value: bytes) -> str:
    """Return bytes as text if they are UTF-8, else as base64 with the prefix `base64:`."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(value).decode()
