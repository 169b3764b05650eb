"""Makes rows of payloads that have the same members, without taking each payload apart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from eventbridge.event.ids import delivery_id_text

#: The JSON text of no value.
NULL: Final = b"null"
#: What a decoder raises for a payload that is no such object, or not in UTF-8.
NO_OBJECT: Final = (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeDecodeError)


class Row(NamedTuple):
    """A row of a statement.

    `number` is that of its delivery, `columns` are those that it sets, in ascending order, `text` is its JSON
    text, and `key` has the JSON texts of the columns of the key.
    """

    number: int
    columns: tuple[str, ...]
    text: str
    key: tuple[bytes, ...]


class RowForm:
    """The form of payloads that are objects with exactly the members `names`, each of which has a column.

    The text of such a payload is the text of its row, for a database that finds columns by name. `id_column` gets the
    delivery's id.
    """

    def __init__(self, names: Sequence[str], key: Sequence[str], id_column: str | None) -> None:
        attributes = {f"c{number}": name for number, name in enumerate(names)}
        fields = [(each, msgspec.Raw) for each in attributes]
        form = msgspec.defstruct("Form", fields, rename=attributes, forbid_unknown_fields=True, gc=False)
        self._decode = msgspec.json.Decoder(form).decode
        self._key = [each for name in key for each in attributes if attributes[each] == name]
        self._columns = tuple(sorted(names if id_column is None else [*names, id_column]))
        self._id_column = id_column
        self._id_member = f",{json.dumps(id_column)}:"

    def row(self, number: int, delivery_id: bytes, payload: bytes) -> Row | None:
        """Return the row of a payload; None if the payload has another form, or no value for the key."""
        try:
            text = payload.decode()
            found = self._decode(payload)
        except NO_OBJECT:
            return None
        key = tuple([bytes(getattr(found, each)).strip() for each in self._key])
        if NULL in key:
            return None
        if self._id_column is not None:
            text = f'{text.rstrip()[:-1]}{self._id_member}"{delivery_id_text(delivery_id)}"}}'
        return Row(number, self._columns, text, key)
