"""Provides the keys, strings, numbers and addresses, with their spellings, of random rules and of events made for them.

Each value has near misses, so that every comparison has both results. One vocabulary serves one rule set, and is so
small that its rules and events often match.
"""

from __future__ import annotations

import json
import random
from ipaddress import IPv6Address
from typing import Final, NamedTuple

KEYS: Final = (
    *("a", "b", "c", "d", "", "é", "😀", "\ud800", 'q"\\/', "a.b", "$x", "\n"),
    *("eightlong", "eightlon", "eightlonG", "eightlong and more", "eightlong and most", "seven77"),
    *(f"wide{number}" for number in range(14)),
)
ALPHABETS: Final = (
    "ab",
    "abAB",
    "aß€😀",
    'a"\\/\n\t\b\f\r\x00\x1f',
    "\ud83d\ude00\ud800a",
    "sSßẞſkKKiİıǰŉΐςσΣﬃﬁᾳꭰ𐐀𐐨",  # noqa: RUF001 - how these fold is the point
    "*?.[0",
)
WORDS: Final = (
    *("", "ss", "STRASSE", "Straße", "ﬃ", "ffi", "i̇", "İ", "ΐ", "ΐ", "ab" * 20, "x" * 7, "x" * 8, "x" * 9, "x" * 33),
    *("😀", "\ud83d", "\ude00", "a\ud83d", "1", "1.0", "true", "null", "a*b", "a\\b", "\u2028", "\x7f", "\uffff"),
)
EXPRESSIONS: Final = {
    "a*b?": ("aaab", "", "abb"),
    "[ab]+": ("baab", "abc", ""),
    "(a|ab)(b|)": ("ab", "abb", "a"),
    "(?i)strasse|straße": ("STRASSE", "Straße", "strase"),
    ".": ("a", "😀", "\n", "\ud83d"),
    "(?s).*": ("", "a\nb", "\ud83d"),
    "[^a]": ("b", "é", "\n", "\ud800"),
    "x{7,9}": ("x" * 7, "x" * 10, "x" * 9),
    '.*"\\\\.*': ('a"\\b', '"', '"\\'),
    "1|[0-9.]+": ("1", "10.1.2.3", "1e5"),
    r"\x00|\pL+": ("\x00", "aß", "😀"),
}
_UNFOLD: Final = {
    "ss": ("ß", "ẞ", "\u017fs", "SS"),
    "ffi": ("ﬃ", "ﬀi", "FFI"),
    "k": ("\u212a",),
    "i\u0307": ("İ",),
    "s": ("\u017f",),
}
_CHOOSE_SPELLING: Final = (0, 0, 0, 0, 1, 1, 2)


class Decimal(NamedTuple):
    """A number: digits without leading or trailing zeros, times a power of ten; "0" has no sign."""

    sign: str
    digits: str
    power: int


class Vocabulary:
    """The values of one rule set and its events."""

    def __init__(self, random: random.Random) -> None:
        self.random = random
        keys = random.sample(KEYS, random.randint(3, 9)) + random.sample(KEYS[-14:], random.choice((0, 0, 10)))
        keys = list(dict.fromkeys(keys))
        self.paths = sorted({tuple(random.choices(keys, k=random.choice((1, 1, 2, 2, 3)))) for _ in range(14)})
        self.paths += [(key,) for key in keys if key.startswith("wide") and (key,) not in self.paths]
        self.texts = [self._text() for _ in range(10)] + random.sample(WORDS, 6)
        self.numbers = [self._number() for _ in range(7)]
        self.blocks = [self._block() for _ in range(5)]

    # --- strings ---

    def _text(self) -> str:
        length = self.random.choice((1, 2, 2, 3, 3, 5, 8, 12, 40))
        return "".join(self.random.choices(self.random.choice(ALPHABETS), k=length))

    def text(self) -> str:
        """Return one of the strings, or two of them joined."""
        choice = self.random.choice
        return choice(self.texts) if self.random.random() < 0.8 else choice(self.texts) + choice(self.texts)

    def other_case(self, text: str) -> str:
        """Return a string that is likely to have the same case folding as this one."""
        choice = self.random.choice
        for folded, others in _UNFOLD.items():
            if folded in text and choice((True, False)):
                text = text.replace(folded, choice(others), 1)
        way = choice((str.upper, str.lower, str.swapcase, str.casefold, str))
        return way(text)

    def near_text(self, text: str) -> str:
        """Return a string that differs slightly from this one."""
        at = self.random.randrange(len(text) + 1)
        way = self.random.randrange(4)
        if way == 0:
            return text[:at] + text[at + 1 :]
        return text[:at] + self.random.choice(self.texts)[:1] + text[at + (way == 1) :]

    # --- numbers ---

    def _number(self) -> Decimal:
        choice, whole = self.random.choice, self.random.randrange
        kind = self.random.randrange(9)
        sign = choice(("", "", "-"))
        if kind < 3:
            number = plain(sign, str(whole(13)), choice((0, 0, -1, -2, 3)))
        elif kind < 5:
            digits = choice((15, 16, 17, 18, 30))
            number = plain(sign, str(whole(10 ** (digits - 1), 10**digits)), choice((0, 0, -digits, -3, 5, -400)))
        elif kind == 5:
            number = plain(
                sign, choice(("9007199254740992", "9007199254740993", "30000000000000004")), choice((0, -17))
            )
        elif kind == 6:
            number = plain(sign, choice(("1", "17976931348623157", "49")), choice((400, 292, -325, -400, 308)))
        elif kind == 7:
            exponent = choice((10**17 - 1, 10**16, 10**17, 10**18 + 7, 10**19, 2**63, 2**64, 10**30))
            number = plain(sign, choice(("1", "12", "999")), choice((exponent, -exponent)))
        else:
            number = plain("", "0", 0)
        return number

    def near_number(self, number: Decimal) -> Decimal:
        """Return a number, or one that differs from it in the last digit or in a much later one."""
        far = self.random.choice((0, 0, 1, 3, 14, 17, 25))
        by = self.random.choice((0, 0, 0, 1, -1))
        value = int(number.sign + number.digits) * 10**far + by
        return plain("-" if value < 0 else "", str(abs(value)), number.power - far)

    def spelled_number(self, number: Decimal) -> str:
        """Return a number's JSON text in one of its many forms."""
        choice = self.random.choice
        sign, digits, power = number
        if digits == "0":
            return choice(("0", "-0", "0.0", "-0.000", "0e5", "0E-7", "0e99999999999999999999", "-0.0e+30"))
        if 0 <= power < 25 and choice((True, True, False)):
            return sign + digits + "0" * power + choice(("", "", "", ".0", ".000", "e0", "E+0", "e-00"))
        if -len(digits) < power < 0 and choice((True, True, False)):
            return f"{sign}{digits[:power]}.{digits[power:]}{choice(('', '', '0', '00e0'))}"
        if -30 < power < 0 and choice((True, True, False)):
            return f"{sign}0.{digits.rjust(-power, '0')}" if len(digits) <= -power else f"{sign}{digits}e{power}"
        zeros = choice((0, 0, 1, 3))
        at = self.random.randint(0, len(digits))
        whole, rest = digits[:at] or "0", digits[at:] + "0" * zeros
        exponent = power + len(digits) - at
        plus = choice(("", "+", "+00")) if exponent >= 0 else ""
        return f"{sign}{whole}{'.' + rest if rest else ''}{choice('eE')}{plus}{exponent}"

    # --- addresses ---

    def _block(self) -> str:
        choice = self.random.choice
        if choice((True, False)):
            value = choice((0, 0x0A000000, 0x0A010203, 0xFFFFFFFF, self.random.getrandbits(32)))
            return f"{four(value)}/{choice((0, 1, 8, 16, 24, 31, 32, 32))}"
        value = choice((0, 1, 0xFFFF << 32, (0xFFFF << 32) + 0x0A010203, 0xFD << 120, self.random.getrandbits(128)))
        return f"{IPv6Address(value)}/{choice((0, 1, 8, 64, 80, 95, 96, 97, 104, 127, 128, 128))}"

    def address(self, block: str) -> str:
        """Return an address in a block, at its boundaries or outside it, in any spelling; sometimes a damaged one."""
        spelled, _, mask = block.partition("/")
        width = 128 if ":" in spelled else 32
        value = int(IPv6Address(spelled)) if width == 128 else int.from_bytes(map(int, spelled.split(".")), "big")
        host = (1 << (width - int(mask))) - 1
        first, last = value & ~host, value | host
        value = self.random.choice((first, last, value, first - 1, last + 1, first + host // 2)) % (1 << width)
        text = self.spelled_address(width, value)
        return text if self.random.random() < 0.85 else self._damaged(text)

    def spelled_address(self, width: int, value: int) -> str:
        """Return an address in one of its spellings."""
        choice = self.random.choice
        if width == 32:
            if choice((True, True, False)):
                return four(value)
            value += 0xFFFF << 32
        groups = [f"{value >> shift & 0xFFFF:x}" for shift in range(112, -16, -16)]
        if choice((True, False)):
            groups = [group.zfill(choice((1, 2, 4))) for group in groups]
        if choice((True, False, False)):
            groups[6:] = [four(value & 0xFFFFFFFF)]
        text = ":".join(groups)
        zeros = [index for index, group in enumerate(groups) if not group.strip("0")]
        if zeros and choice((True, True, False)):
            first = last = choice(zeros)
            while last + 1 in zeros and self.random.random() < 0.9:
                last += 1
            text = ":".join(groups[:first]) + "::" + ":".join(groups[last + 1 :])
        return text.upper() if choice((True, False, False)) else text

    def _damaged(self, text: str) -> str:
        at = self.random.randrange(len(text) + 1)
        put = self.random.choice((":", ".", "0", "g", "::", "%eth0", " ", "/8", "1", ""))
        return text[:at] + put + text[at + self.random.randrange(2) :]

    # --- any leaf ---

    def scalar_text(self) -> str:
        """Return the JSON text of any scalar of the vocabulary."""
        kind = self.random.randrange(10)
        if kind < 5:
            return self.spelled_text(self.text())
        if kind < 8:
            return self.spelled_number(self.near_number(self.random.choice(self.numbers)))
        return self.random.choice(("null", "true", "false"))

    def spelled_text(self, text: str) -> str:
        """Return the JSON text of a string: without escapes, with escapes beyond ASCII, or with escapes anywhere."""
        way = self.random.choice(_CHOOSE_SPELLING)
        if way == 1:
            return json.dumps(text)
        if way == 0:
            plainly = json.dumps(text, ensure_ascii=False)
            if plainly.isascii():
                return plainly
        return '"' + "".join(map(self._spelled_character, text)) + '"'

    def _spelled_character(self, character: str) -> str:
        escaped = json.dumps(character)[1:-1]
        if "\ud800" <= character <= "\udfff":
            return self.random.choice((escaped, escaped.upper().replace("U", "u")))
        if character in '"\\' or character < " ":
            return self.random.choice((escaped, f"\\u{ord(character):04X}"))
        if character > "\uffff" or self.random.random() < 0.7:
            return self.random.choice((character, character, escaped))
        return "\\/" if character == "/" else f"\\u{ord(character):04x}"


def plain(sign: str, digits: str, power: int) -> Decimal:
    """Return a number in its canonical form."""
    kept = digits.lstrip("0").rstrip("0")
    if not kept:
        return Decimal("", "0", 0)
    return Decimal(sign, kept, power + len(digits) - len(digits.rstrip("0")))


def four(value: int) -> str:
    """Return an IPv4 address as a string."""
    return ".".join(map(str, value.to_bytes(4, "big")))
