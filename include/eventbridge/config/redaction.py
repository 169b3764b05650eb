"""Removes secrets from everything that is recorded about a request and its response."""

from __future__ import annotations

import base64
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from html.entities import codepoint2name
from typing import Any, Final

import re2

#: A shorter secret is not masked, because asterisks in place of common text would reveal it.
SHORTEST_MASKED: Final = 6

#: Replaces a response or message that repeats a secret too short to be masked.
WITHHELD: Final = b"withheld: it repeats a secret of fewer than six characters"

#: The characters that no encoder of URLs, JSON or HTML escapes.
_PLAIN: Final = frozenset(string.ascii_letters + string.digits + "-_.")
#: The `&` of an entity, as written in JSON inside or outside HTML.
_AMPERSAND: Final = r"(?:&(?:amp;)?|\\{1,4}[uU]0026)"
#: The maximum number of bytes that `_escaped_forms` matches for one byte. The longest form consists of backslashes, an
#: ampersand, `#x`, zeros, digits and `;`.
_LONGEST_FORM: Final = 22
#: The maximum number of characters of a secret in one expression; 1,000 that are all escaped take 1 MB.
LONGEST_PIECE: Final = 1_000
#: A secret of fewer bytes determines at most two characters of base64, which unrelated text would contain too.
_SHORTEST_IN_BASE64: Final = 3


@dataclass(frozen=True)
class SecretForm:
    """A secret value, and a search for it in any form in which a server's response may repeat it.

    The forms are: the value as is; the value escaped once or twice for URLs, JSON or HTML; the value decoded as Latin-1
    from a header; and the value as part of a base64 string.
    """

    value: str = field(repr=False)

    @property
    def is_masked(self) -> bool:
        """Return whether it is replaced by asterisks; otherwise any text that repeats it is withheld."""
        return len(self.value) >= SHORTEST_MASKED

    @cached_property
    def longest(self) -> int:
        """Return the maximum length of a form, in bytes."""
        return max(sum(_longest(character) for character in text) for text in self._texts)

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        return (self.value, *_base64_forms(self.value))

    @cached_property
    def _pattern(self) -> Any:
        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1
        options.log_errors = False
        options.never_capture = True
        options.max_mem = 64 << 20  # a piece with only characters outside the BMP takes a quarter of it
        value, *others = self._texts
        forms = ["".join(map(_any_form, value)), *("".join(map(_any_form_in_base64, text)) for text in others)]
        return re2.compile("|".join(forms).encode("latin-1"), options)

    def prepare(self) -> None:
        """Compile the expression now; it takes 10 ms for a secret of 2,000 characters, 0.5 s for 8,000 escaped ones."""
        _ = self._pattern

    def spans(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Yield the start and the end of each form found in `text`."""
        for found in self._pattern.finditer(text):
            yield found.span()


def forms_of(values: Iterable[str]) -> tuple[SecretForm, ...]:
    """Return the forms of secret values; an empty value has none, and a long one has one for each piece."""
    return tuple(SecretForm(piece) for value in sorted({*values}) for piece in _pieces(value))


def mask(text: bytes, forms: Iterable[SecretForm]) -> bytes:
    """Return `text` with every secret of six or more characters replaced by as many asterisks."""
    if len(text) < SHORTEST_MASKED:
        return text
    spans = [span for form in forms if form.is_masked for span in form.spans(text)]
    if not spans:
        return text
    found = bytearray(text)
    for begin, end in spans:
        found[begin:end] = b"*" * (end - begin)
    return bytes(found)


def veiled(text: bytes, forms: Iterable[SecretForm]) -> bytes:
    """Return `text` as `mask` does, or WITHHELD if it repeats a secret that is too short to be masked."""
    listed = list(forms)
    shown = mask(text, listed)
    return WITHHELD if any(not form.is_masked and any(form.spans(shown)) for form in listed) else shown


def _pieces(value: str) -> Iterator[str]:
    """Yield a value in equal pieces of at most LONGEST_PIECE, so that no expression is too large for RE2."""
    number = -(-len(value) // LONGEST_PIECE)
    for index in range(number):
        yield value[index * len(value) // number : (index + 1) * len(value) // number]


def _any_form(character: str) -> str:
    """Return the expression for one character of a secret in all its forms."""
    if character in _PLAIN:
        return f"\\x{ord(character):02x}"
    as_latin_1 = character.encode(errors="surrogatepass").decode("latin-1")
    misread = "".join(map(_escaped_forms, as_latin_1))
    return f"(?:{_escaped_forms(character)}|{misread})" if len(as_latin_1) > 1 else _escaped_forms(character)


def _any_form_in_base64(character: str) -> str:
    """Return the expression for one character of a base64 string in all its forms; base64 has two alphabets."""
    other = {"+": "-", "/": "_"}.get(character)
    return _any_form(character) if other is None else f"(?:{_escaped_forms(character)}|{other})"


def _escaped_forms(character: str) -> str:
    encoded = character.encode(errors="surrogatepass")
    code, units = ord(character), character.encode("utf-16-be", errors="surrogatepass").hex()
    raw = "".join(f"\\x{byte:02x}" for byte in encoded)
    in_url = "".join(f"%(?:25)?{byte:02x}" for byte in encoded)
    in_json = "".join(rf"\\{{1,4}}u{units[index : index + 4]}" for index in range(0, len(units), 4))
    entities = "|".join([f"#0{{0,4}}{code}", f"#x0{{0,4}}{code:x}", *_names(code)])
    more = r"|\+" if character == " " else ""
    return rf"(?:\\{{0,4}}(?:{raw}|(?i:{_AMPERSAND}(?:{entities});))|(?i:{in_url}|{in_json}){more})"


def _names(code: int) -> list[str]:
    return ["apos"] if code == ord("'") else [codepoint2name[code]] if code in codepoint2name else []


def _longest(character: str) -> int:
    return 1 if character in _PLAIN else _LONGEST_FORM * len(character.encode(errors="surrogatepass"))


def _base64_forms(value: str) -> tuple[str, ...]:
    """Return the base64 characters that a value determines inside a longer encoded text, for each possible alignment.

    A character at an edge also depends on the surrounding text, holds at most four bits of the value, and is left out.
    """
    encoded = value.encode(errors="surrogatepass")
    if len(encoded) < _SHORTEST_IN_BASE64:
        return ()
    found = []
    for before in range(3):
        text = base64.b64encode(bytes(before) + encoded).decode()
        first, last = -(-8 * before // 6), 8 * (before + len(encoded)) // 6
        found.append(text[first:last])
    return tuple(found)
