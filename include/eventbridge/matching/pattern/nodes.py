"""Defines the nodes of a parsed pattern: one frozen class per operator, in the order of docs/reference/patterns.md.

The matchers visit these nodes; only the parser creates them, so they are always well-formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from eventbridge.event.json_document import Number

Scalar: TypeAlias = bool | str | Number | None
Path: TypeAlias = tuple[str, ...]
Comparison: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Exactly:
    """The leaf is this scalar, type included: strings by code point, numbers by exact decimal value."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Prefix:
    """The leaf is a string that starts with `text`; with `ignore_case` both are case-folded first."""

    text: str
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class Suffix:
    """The leaf is a string that ends with `text`; with `ignore_case` both are case-folded first."""

    text: str
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class EqualsIgnoreCase:
    """The leaf is a string with the same full Unicode case folding as `text`."""

    text: str


@dataclass(frozen=True, slots=True)
class Wildcard:
    """The leaf is a string that `text` matches as a whole: `*` matches any characters, and a backslash escapes."""

    text: str

    @property
    def parts(self) -> tuple[str, ...]:
        r"""The literal strings around the wildcards, unescaped: `("a", "*")` for `a*\*`, and `("a",)` for `a`."""
        parts, escaped = [""], False
        for character in self.text:
            if character == "*" and not escaped:
                parts.append("")
            elif character == "\\" and not escaped:
                escaped = True
                continue
            else:
                parts[-1] += character
            escaped = False
        return tuple(parts)


@dataclass(frozen=True, slots=True)
class Contains:
    """The leaf is a string that contains `text`."""

    text: str


@dataclass(frozen=True, slots=True)
class Regex:
    """The leaf is a string that the RE2 expression matches as a whole."""

    expression: str


@dataclass(frozen=True, slots=True)
class Numeric:
    """The leaf is a number that meets the one or two comparisons, by exact decimal value."""

    bounds: tuple[tuple[Comparison, Number], ...]


@dataclass(frozen=True, slots=True)
class Exists:
    """If `there` is true, a leaf exists (it may be null); otherwise no leaf exists."""

    there: bool


@dataclass(frozen=True, slots=True)
class Cidr:
    """The leaf is a string that spells an IP address in `block` (`eventbridge.matching.pattern.address`)."""

    block: str


@dataclass(frozen=True, slots=True)
class AnythingBut:
    """There is a leaf that none of these conditions accepts; all conditions have the same class."""

    none_of: tuple[Exactly | Prefix | Suffix | Contains | EqualsIgnoreCase | Wildcard | Cidr | Regex, ...]


@dataclass(frozen=True, slots=True)
class All:
    """One leaf meets every one of the conditions."""

    conditions: tuple[Condition, ...]


Condition: TypeAlias = (
    Exactly
    | Prefix
    | Suffix
    | EqualsIgnoreCase
    | Wildcard
    | Contains
    | Regex
    | Numeric
    | Exists
    | Cidr
    | AnythingBut
    | All
)


@dataclass(frozen=True, slots=True)
class Field:
    """A leaf list, which is met if a leaf at `path` (keys from the top of the event) meets one of the conditions."""

    path: Path
    conditions: tuple[Condition, ...]

    @property
    def can_be_absent(self) -> bool:
        """Whether the list contains `{"exists": false}`, so that the absence of a leaf meets it too."""
        return Exists(False) in self.conditions


@dataclass(frozen=True, slots=True)
class And:
    """Every clause holds, with leaves that are consistent with one another."""

    clauses: tuple[Clause, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one of two or more sub-patterns holds; `path` is the object that contains `$or`.

    The paths of the fields in the sub-patterns are absolute.
    """

    path: Path
    alternatives: tuple[And, ...]


Clause: TypeAlias = Field | Or


@dataclass(frozen=True, slots=True)
class Not:
    """The sub-pattern does not match the event."""

    pattern: And


@dataclass(frozen=True)
class Pattern:
    """A whole filter pattern: `where` matches and the sub-pattern of `$not`, if there is one, does not."""

    where: And
    unless: Not | None = None

    def __hash__(self) -> int:
        # Every match needs the hash, and computing it visits all nodes, so it is kept.
        known = self.__dict__.get("_hash")
        if known is None:
            known = self.__dict__["_hash"] = hash((self.where, self.unless))
        return int(known)

    def __reduce__(self) -> tuple[type[Pattern], tuple[And, Not | None]]:
        # Another process hashes strings differently, so the hash is not pickled.
        return Pattern, (self.where, self.unless)


OPERATORS: Final[dict[str, type]] = {
    "exactly": Exactly,
    "prefix": Prefix,
    "suffix": Suffix,
    "equals-ignore-case": EqualsIgnoreCase,
    "wildcard": Wildcard,
    "contains": Contains,
    "regex": Regex,
    "numeric": Numeric,
    "exists": Exists,
    "cidr": Cidr,
    "anything-but": AnythingBut,
    "all": All,
    "$or": Or,
    "$not": Not,
}
"""Every operator of the language, as a pattern spells it, in the order of the documentation."""
