"""Checks regular expressions in SQL, because Java evaluates them by backtracking, which may take very long."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

#: The maximum number of characters in a pattern.
MAXIMUM_PATTERN: Final = 1_000
#: The maximum number of unbounded parts in a pattern, so that the check of a pattern is quick.
MAXIMUM_UNBOUNDED: Final = 20
#: The maximum number of ways in which the bounded parts can be combined; the ways of `?`, `{1,3}` and `a|b` multiply.
MAXIMUM_WAYS: Final = 100_000

_PIECE: Final = re.compile(
    r"""(?P<escape>\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[pP][A-Z]|\\[^xupP])
    |(?P<set>\[\^?\]?(?:\\[^cQE]|(?!&&)[^\[\]\\])*\])
    |(?P<open>\((?:\?(?:[:=!>]|<[=!]|<\w+>|[imsu]+\))|(?!\?)))
    |(?P<close>\))
    |(?P<either>\|)
    |(?P<repeat>(?:[*+?]|\{[0-9]{1,4}(?:,[0-9]{0,4})?\})[?+]?)
    |(?P<plain>[^\\\[\](){}|*+?]|[\]}])""",
    re.DOTALL | re.VERBOSE,
)


@dataclass
class _Group:
    repeats: bool = False
    optional: bool = False
    branches: int = 1
    is_lookaround: bool = False


class _Pattern:
    """The pieces of a pattern, the groups that are open after the last piece, and the pattern's problem, if any."""

    def __init__(self, pattern: str) -> None:
        self.pieces: list[Piece] = []
        self.ways = 1
        self._groups = [_Group()]
        self._unbounded = 0
        self._closed = _Group()  # the group that the last piece closed, or an empty one
        self.problem = self._read(pattern)

    def _read(self, pattern: str) -> str | None:
        """Read all pieces of a pattern; return the first problem, or None if there is none."""
        if len(pattern) > MAXIMUM_PATTERN:
            return f"it has {len(pattern):,} characters; the maximum is {MAXIMUM_PATTERN:,}"
        at = 0
        while at < len(pattern):
            found = _PIECE.match(pattern, at)
            if found is None:
                return f"{pattern[at:][:10]!r} in it is not supported"
            at = found.end()
            self.pieces.append(Piece(str(found.lastgroup), found[0]))
            if problem := self._take(self.pieces[-1]):
                return problem
        return self._problem_of_all()

    def _take(self, piece: Piece) -> str | None:
        if piece.kind == "escape" and (piece.text[1].isdigit() or piece.text[1] in "QEckGXRN"):
            return f"{piece.text} in it is not supported"
        if piece.kind == "close":
            return self._close()
        problem = None
        if piece.kind == "repeat":
            problem = self._repeat(piece)
        elif piece.kind == "open" and not piece.text.endswith(")"):
            problem = self._open(piece)
        elif piece.kind == "either":
            self._groups[-1].branches += 1
        self._closed = _Group()
        return problem

    def _repeat(self, piece: Piece) -> str | None:
        closed = self._closed
        if piece.text[0] == "?":
            self._groups[-1].optional = True
        elif closed.repeats or closed.optional or closed.branches > 1:
            return f"{piece.text} repeats a group that has a repetition or a choice inside"
        else:
            self._groups[-1].repeats = True
            self._unbounded += piece.has_no_end
        self.ways *= _ways(piece.text)
        return None

    def _open(self, piece: Piece) -> str | None:
        around = self._groups[-1].is_lookaround
        if around and (piece.text == "(" or (piece.text[2:3] == "<" and piece.text[3] not in "=!")):
            return f"{piece.text} captures inside a look-around; write (?: there"
        self._groups.append(_Group(is_lookaround=around or is_lookaround(piece)))
        return None

    def _close(self) -> str | None:
        if len(self._groups) == 1:
            return "it closes a group that is not open"
        self._closed = closed = self._groups.pop()
        self.ways *= closed.branches
        self._groups[-1].repeats |= closed.repeats
        self._groups[-1].optional |= closed.optional or closed.branches > 1
        return None

    def _problem_of_all(self) -> str | None:
        if len(self._groups) > 1:
            return "it does not close a group"
        if self._unbounded > MAXIMUM_UNBOUNDED:
            return f"it repeats {self._unbounded} parts without an upper bound; the maximum is {MAXIMUM_UNBOUNDED}"
        self.ways *= self._groups[0].branches
        if self.ways > MAXIMUM_WAYS:
            return f"its ?, {{m,n}} and | can be combined in {self.ways:,} ways; the maximum is {MAXIMUM_WAYS:,}"
        return None


def pattern_problem(pattern: str) -> str | None:
    """Return why a regular expression is rejected, or None if it is accepted.

    These are rejected: references to groups, `\\Q`, flags that change the meaning of pieces, sets inside sets, groups
    that capture inside a look-around (they may capture more than the match), a repeated group that contains a
    repetition or a choice (the time may double with each character of the string), and a pattern that is too slow for a
    string of `LEAST_TEXT` characters.
    """
    read = _Pattern(pattern)
    if read.problem is None and not longest_text(read.pieces, read.ways):
        return f"it may take more than a second for a text of {LEAST_TEXT} characters"
    return read.problem


def pattern_limit(pattern: str) -> int:
    """Return the maximum number of characters in a string to which an accepted pattern is applied."""
    read = _Pattern(pattern)
    return longest_text(read.pieces, read.ways)


def _ways(repeat: str) -> int:
    """Return how many different counts a repetition with an upper bound allows; 1 for any other repetition."""
    if repeat[0] == "?":
        return 2
    bounds = re.match(r"\{([0-9]+),([0-9]+)\}", repeat)
    return max(1, int(bounds[2]) - int(bounds[1]) + 1) if bounds else 1


#: The maximum number of tries of one pattern on one string. Java 17 takes 1 to 10 ns for each try, so at most a second.
MAXIMUM_TRIES: Final = 100_000_000
#: A pattern is rejected if it cannot be applied to strings of this many characters.
LEAST_TEXT: Final = 500
#: A number of characters that no string exceeds, because an event has at most a few MiB.
NO_LIMIT: Final = 16_000_000

#: Sets of characters hold the code points below 256; `_OTHER` stands for all other characters.
_OTHER: Final = 256
_ALL: Final = frozenset(range(_OTHER + 1))
_DIGITS: Final = frozenset(map(ord, "0123456789"))
_WORD: Final = _DIGITS | frozenset(map(ord, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"))
_SPACE: Final = frozenset(map(ord, " \t\n\x0b\f\r"))
_CLASSES: Final = {
    "d": _DIGITS,
    "D": _ALL - _DIGITS,
    "s": _SPACE,
    "S": _ALL - _SPACE,
    "w": _WORD,
    "W": _ALL - _WORD,
    **{name: frozenset({ord(sign)}) for name, sign in zip("tnrfae", "\t\n\r\f\a\x1b", strict=True)},
}
_ZERO_WIDTH: Final = frozenset({"^", "$", r"\b", r"\B", r"\A", r"\z", r"\Z"})
_MEMBER: Final = re.compile(r"\\.|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a pattern: the name of its group in `_PIECE`, and its text."""

    kind: str
    text: str

    @property
    def can_be_empty(self) -> bool:
        """Whether this is a repetition that may match zero times."""
        return self.kind == "repeat" and (self.text[0] in "?*" or re.match(r"\{0+[,}]", self.text) is not None)

    @property
    def has_no_end(self) -> bool:
        """Whether this is a repetition without an upper bound."""
        return self.kind == "repeat" and (self.text[0] in "*+" or ",}" in self.text)


@dataclass
class _GroupCost:
    start: int
    end: int = 0
    choice: bool = False


@dataclass
class _Shape:
    """The groups of a pattern, by the position of each piece that opens, closes or is directly inside them."""

    pieces: Sequence[Piece]
    flags: str = ""
    groups: dict[int, _GroupCost] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.flags = "".join(each.text for each in self.pieces if each.kind == "open" and each.text[-1] == ")")
        around = [_GroupCost(-1, len(self.pieces))]
        for at, piece in enumerate(self.pieces):
            if piece.kind == "open" and piece.text[-1] != ")":
                around.append(_GroupCost(at))
            elif piece.kind == "either":
                around[-1].choice = True
            self.groups[at] = around[-1]
            if piece.kind == "close":
                around.pop().end = at

    def repeat(self, at: int) -> Piece | None:
        """Return the repetition that applies to the piece at a position, or None if there is none."""
        after = self.pieces[at + 1] if at + 1 < len(self.pieces) else None
        return after if after is not None and after.kind == "repeat" else None

    def is_anchored(self) -> bool:
        """Whether a match can begin only at the first character."""
        top = next((group for group in self.groups.values() if group.start < 0), None)
        first = next((at for at, each in enumerate(self.pieces) if each.text[-1] != ")" or each.kind != "open"), None)
        if first is None or top is None or top.choice or self.repeat(first):
            return False
        return self.pieces[first].text == r"\A" or (self.pieces[first].text == "^" and "m" not in self.flags)

    def look_around(self, at: int) -> int | None:
        """Return where the outermost look-around that contains a position begins, or None if there is none."""
        opened = {group.start: group for group in self.groups.values() if group.start >= 0}
        looks = [
            start for start, group in opened.items() if start < at < group.end and is_lookaround(self.pieces[start])
        ]
        return min(looks, default=None)

    def tries(self, at: int) -> tuple[int, int]:
        """Return the powers of the length that a repetition adds to the tries: (several ends, only one end)."""
        repeated = self.pieces[at - 1]
        signs = _ALL if repeated.kind == "close" else characters(repeated.text, self.flags)
        following = self._following(at + 1, signs)
        return (1, 0) if following is None else (0, following)

    def _following(self, at: int, signs: frozenset[int]) -> int | None:
        """Return None if a repetition of these characters has several possible ends, 0 if nothing follows, else 1."""
        found, positions, seen = 0, [at], set[int]()
        while positions:
            at = positions.pop()
            if at in seen or at >= len(self.pieces):
                continue
            seen.add(at)
            behind = self._positions_behind(at, signs)
            if behind is None:
                return None
            found = max(found, int(self._is_character(at)))
            positions += behind
        return found

    def _is_character(self, at: int) -> bool:
        """Whether a piece matches a character or a position between characters."""
        piece = self.pieces[at]
        return piece.text in _ZERO_WIDTH or piece.kind in ("plain", "escape", "set")

    def _positions_behind(self, at: int, signs: frozenset[int]) -> list[int] | None:
        """Return where a match may continue after a piece, or None if a repetition of `signs` may end within it."""
        piece, group, repeat = self.pieces[at], self.groups[at], self.repeat(at)
        behind = [at + (2 if repeat else 1)]
        repeats = repeat is not None and repeat.text[0] != "?"
        if piece.kind == "either":
            return [group.end]
        if piece.kind == "close":
            return None if is_lookaround(self.pieces[group.start]) or repeats else behind
        if piece.kind == "open" and piece.text[-1] != ")":
            around = self.repeat(group.end)
            if is_lookaround(piece) or group.choice or (around and around.text[0] != "?"):
                return None
            return [group.end + 2, *behind] if around else behind
        if piece.text in _ZERO_WIDTH:
            return None if repeat else behind
        if not self._is_character(at):
            return behind
        if signs & characters(piece.text, self.flags):
            return None
        return behind if repeat is not None and repeat.can_be_empty else []


def is_lookaround(piece: Piece) -> bool:
    """Return whether a piece opens a look-ahead or a look-behind."""
    return re.match(r"\(\?<?[=!]", piece.text) is not None


def longest_text(pieces: Sequence[Piece], ways: int) -> int:
    """Return the maximum number of characters in a string to which a pattern is applied, 0 if it is rejected.

    `ways` is the number of ways in which the pattern's bounded repetitions and choices can be combined.
    """
    shape = _Shape(pieces)
    looks: Counter[int] = Counter()  # Java never backtracks into a look-around, so the tries add up and do not multiply
    found = []
    for at in (at for at, piece in enumerate(pieces) if piece.has_no_end):
        look = shape.look_around(at)
        if look is None:
            found.append(shape.tries(at))
        else:
            looks[look] += 1
    degree = (not shape.is_anchored()) + sum(several for several, _ in found)
    degree += any(one for _, one in found) + max(looks.values(), default=0)
    steps = sum(int(each) for piece in pieces if piece.kind == "repeat" for each in re.findall(r"\d+", piece.text)[-1:])
    return text_limit(degree, ways * max(1, steps))


def text_limit(degree: int, times: int = 1) -> int:
    """Return the maximum length if the tries are `times` the length to the power of `degree`, 0 if it is too short."""
    if times > MAXIMUM_TRIES:
        return 0
    if degree == 0:
        return NO_LIMIT
    most = int((MAXIMUM_TRIES * math.factorial(degree) / times) ** (1 / degree))
    return 0 if most < LEAST_TEXT else min(most, NO_LIMIT)


def characters(piece: str, flags: str = "") -> frozenset[int]:
    """Return a set of characters that includes all that one piece of a pattern may match."""
    found = _characters_of_set(piece, flags) if piece[0] == "[" else _characters_of_single(piece)
    return _other_case(found, flags)


def _characters_of_set(piece: str, flags: str) -> frozenset[int]:
    negated = piece.startswith("[^")
    members = _MEMBER.findall(piece[1 + negated : -1])
    found: set[int] = set()
    while members:
        first = members.pop(0)
        if len(members) > 1 and members[0] == "-" and len(first) == 1 and len(members[1]) == 1:
            members.pop(0)
            last = ord(members.pop(0))
            found |= {min(code, _OTHER) for code in range(ord(first), min(last, _OTHER) + 1)}
            found |= {_OTHER} if last >= _OTHER else set()
        elif len(members) > 1 and members[0] == "-":
            return _ALL  # a range from or to an escape
        else:
            found |= _characters_of_single(first, inside=True)
            if negated and first[0] == "\\" and first[1].isalnum() and first[1] not in _CLASSES:
                return _ALL
    if not negated:
        return frozenset(found)
    return _ALL - {code for code in found if code < _OTHER and _other_case(frozenset({code}), flags) <= found}


def _characters_of_single(text: str, *, inside: bool = False) -> frozenset[int]:
    if text == "." and not inside:
        return _ALL
    if text[0] != "\\":
        return frozenset({min(ord(text), _OTHER)})
    if len(text) > 2 or text[1] not in _CLASSES:
        return _ALL if text[1].isalnum() or len(text) > 2 else frozenset({min(ord(text[1]), _OTHER)})
    return _CLASSES[text[1]]


def _other_case(codes: frozenset[int], flags: str) -> frozenset[int]:
    """Return a set of characters, with upper and lower case of each if the flags ignore case."""
    if "i" not in flags:
        return codes
    found = set(codes)
    for code in codes - {_OTHER}:
        for each in (chr(code).upper(), chr(code).lower()):
            found |= {min(ord(sign), _OTHER) for sign in each}
        if "u" in flags and chr(code).isalpha():
            found.add(_OTHER)
    return frozenset(found)
