"""The operation `hash`: replaces a value by its SHA-256, so that it can be compared and counted but not read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from eventbridge.errors import TransformFailed
from eventbridge.event.json_document import JsonValue
from eventbridge.transform.fields.cast import to_string


@dataclass(frozen=True, slots=True)
class Hash:
    """SHA-256 of `salt` and the value's text behind it, in UTF-8; no key: no secret may stand in a rule file."""

    salt: str

    def __call__(self, value: JsonValue) -> JsonValue:
        """Return 64 hexadecimal digits: of "abc" without salt ba7816bf...f20015ad; 1 and 1.0 have different ones."""
        text = to_string(value)
        assert isinstance(text, str)
        try:
            return hashlib.sha256((self.salt + text).encode()).hexdigest()
        except UnicodeEncodeError:
            raise TransformFailed("it holds half of a surrogate pair, which has no UTF-8") from None
