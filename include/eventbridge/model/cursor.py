"""Encodes cursors, which say where the next page of a list begins, as opaque strings."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import msgspec

from eventbridge.errors import UserError

_Text = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*\Z")]


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """The last item of a page: the planning time of its batch (microseconds since 1970), the batch, file and row."""

    planned_at: Annotated[int, msgspec.Meta(ge=0, lt=253_402_300_800_000_000)]
    batch_id: _Text
    key: _Text = ""
    row: Annotated[int, msgspec.Meta(ge=-1, le=2_147_483_647)] = -1


def write_cursor(cursor: Cursor) -> str:
    """Return a cursor as a string."""
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def write_name_cursor(*names: str) -> str:
    """Return the cursor for a list that is sorted by names, from the names of a page's last item."""
    return base64.urlsafe_b64encode(msgspec.json.encode(names)).decode().rstrip("=")


def read_name_cursor(text: str, count: int) -> tuple[str, ...]:
    """Return the `count` names of a cursor. Raises UserError if `text` is not such a cursor."""
    names = _decode(text, tuple[str, ...])
    if len(names) != count or any("\x00" in name for name in names):
        raise _not_a_cursor(text)
    return names


def read_number_cursor(text: str) -> int:
    """Return the number of a cursor that consists of one number. Raises UserError if `text` is not such a cursor."""
    (number,) = read_number_cursors(text, 1)
    return number


def read_number_cursors(text: str, count: int) -> tuple[int, ...]:
    """Return the `count` numbers of a cursor. Raises UserError if `text` is not such a cursor."""
    names = read_name_cursor(text, count)
    if not all(name.isascii() and name.isdecimal() and len(name) < 19 for name in names):
        raise _not_a_cursor(text)
    return tuple(int(name) for name in names)


def read_time_cursor(text: str) -> datetime:
    """Return the UTC time of a cursor that consists of one time. Raises UserError if `text` is not such a cursor."""
    (name,) = read_name_cursor(text, 1)
    try:
        return datetime.fromisoformat(name).astimezone(UTC)
    except (ValueError, OverflowError):
        raise _not_a_cursor(text) from None


def read_cursor(text: str) -> Cursor:
    """Return the cursor that a string encodes. Raises UserError if the string is not a cursor."""
    return _decode(text, Cursor)


Content = TypeVar("Content")


def _decode(text: str, kind: type[Content]) -> Content:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=kind)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise _not_a_cursor(text) from None


def _not_a_cursor(text: str) -> UserError:
    return UserError(f"{text!r} is not a cursor. Use the cursor of the previous page, or none")
