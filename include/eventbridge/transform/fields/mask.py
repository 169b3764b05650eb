"""The operation `mask`: covers the characters of a text, except some at its ends."""

from __future__ import annotations

from dataclasses import dataclass

from eventbridge.errors import TransformFailed
from eventbridge.event.json_document import JsonValue, Number, type_name


@dataclass(frozen=True, slots=True)
class Mask:
    """Covers every character but the first `keep_first` and the last `keep_last`; what is not longer, whole."""

    keep_first: int
    keep_last: int
    character: str

    def __call__(self, value: JsonValue) -> JsonValue:
        """Return text or the text of a number, masked; TransformFailed for anything else, without its value.

        With keep_last 4, "4111111111111111" becomes "************1111", 12345 becomes "*2345", "1111" becomes "****".
        """
        text = value.text if isinstance(value, Number) else value
        if not isinstance(text, str):
            raise TransformFailed(f"it is {type_name(value)}, and only strings and numbers can be masked")
        covered = len(text) - self.keep_first - self.keep_last
        if covered <= 0:
            return self.character * len(text)
        return text[: self.keep_first] + self.character * covered + text[len(text) - self.keep_last :]
