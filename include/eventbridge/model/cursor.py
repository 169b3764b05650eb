"""A cursor: where a list that is told page by page goes on, as text that only the product reads."""

from __future__ import annotations

import base64
import binascii

import msgspec

from eventbridge.errors import UserError


class Place(msgspec.Struct, frozen=True, array_like=True):
    """The last thing told: when its batch was planned (microseconds since 1970), the batch, its file and the row."""

    planned_at: int
    batch_id: str
    key: str = ""
    row: int = -1


def write_cursor(place: Place) -> str:
    """Return a place as a cursor."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def read_cursor(text: str) -> Place:
    """Return the place of a cursor; raises UserError for what is none."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Place)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise UserError(f"{text!r} is not a cursor. Take the one that the page before it gave, or none") from None
