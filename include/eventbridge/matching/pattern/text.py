"""Reads the operators that look at strings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from eventbridge.matching.pattern.address import parse_address, parse_block
from eventbridge.matching.pattern.expression import NOT_IN_RE2, ExpressionTooLarge
from eventbridge.matching.pattern.location import Location
from eventbridge.matching.pattern.nodes import Cidr, Contains, EqualsIgnoreCase, Prefix, Regex, Suffix, Wildcard
from eventbridge.matching.pattern.raw import read_text, shown

_End = TypeVar("_End", Prefix, Suffix)


def read_end(make: type[_End]) -> Callable[[Any, Location], _End | None]:
    """Return the reader of a `prefix` or `suffix`, whose text may stand below `equals-ignore-case`."""
    name = make.__name__.lower()

    def read(value: Any, here: Location) -> _End | None:
        if not isinstance(value, Mapping):
            text = read_text(value, here, f'{{"{name}": "text"}}')
            return None if text is None else make(text)
        if list(value) != ["equals-ignore-case"]:
            remedy = f'Write {{"{name}": "text"}} or {{"{name}": {{"equals-ignore-case": "text"}}}}.'
            here.wrong(f"{name} takes no {shown(value)}", value, remedy)
            return None
        here = here / "equals-ignore-case"
        text = read_text(value["equals-ignore-case"], here, f'{{"{name}": {{"equals-ignore-case": "text"}}}}')
        return None if text is None else make(text, ignore_case=True)

    return read


def read_equals_ignore_case(value: Any, here: Location) -> EqualsIgnoreCase | None:
    """Read a text compared by full Unicode case folding; None, with an error at `here`, if it is invalid."""
    text = read_text(value, here, '{"equals-ignore-case": "text"}')
    return None if text is None else EqualsIgnoreCase(text)


def read_contains(value: Any, here: Location) -> Contains | None:
    """Read a text to be found anywhere in a string; None, with an error at `here`, if it is invalid."""
    text = read_text(value, here, '{"contains": "text"}')
    return None if text is None else Contains(text)


def read_wildcard(value: Any, here: Location) -> Wildcard | None:
    """Read a text in which * stands for any run of characters; None, with an error at `here`, if it is invalid."""
    text = read_text(value, here, '{"wildcard": "text*"}')
    if text is None:
        return None
    good, position, after_star = True, 0, False
    while position < len(text):
        character = text[position]
        if character == "\\" and text[position + 1 : position + 2] not in ("*", "\\"):
            here.wrong(
                f"a backslash before {shown(text[position + 1 :][:1] or 'the end')} in the wildcard", value, _ESCAPES
            )
            good = False
        elif character == "\\":
            position += 1
        if character == "*" and after_star:
            here.wrong("two wildcards in a row", value, "Write one *: it stands for any run of characters.")
            return None
        after_star = character == "*"
        position += 1
    return Wildcard(text) if good else None


_ESCAPES = r"A backslash escapes only * and itself: \* is a star, \\ a backslash (in JSON each is doubled again)."


_SIMPLER = "Write smaller counts, such as {1,20}, or narrower classes, such as [A-Z] in place of \\pL."


def read_regex(value: Any, here: Location) -> Regex | None:
    """Read a regular expression in RE2's syntax; None, with an error at `here`, if it is invalid."""
    text = read_text(value, here, '{"regex": "[A-Z]{2}[0-9]+"}')
    if text is None:
        return None
    if here.expressions.all.are_too_large:  # which is an error already
        return None
    try:
        here.expressions.add(text)
    except ExpressionTooLarge as error:
        here.wrong(f"the regular expression {shown(text)} {error}", value, _SIMPLER)
        return None
    except ValueError as error:
        remedy = "Correct the expression; its syntax is RE2's (https://github.com/google/re2/wiki/Syntax)."
        if any(sign in text for sign in NOT_IN_RE2):
            remedy = "RE2 has no look-around, back-references or possessive repetition; use all or anything-but for it."
        elif "repetition size" in str(error):
            remedy = "RE2 repeats at most 1,000 times, counts inside of counts multiplied: write smaller counts, or +."
        here.wrong(f"not a regular expression of RE2: {error}", value, remedy)
        return None
    return Regex(text)


def read_cidr(value: Any, here: Location) -> Cidr | None:
    """Read a block of addresses in strict spelling; None, with an error at `here`, if it is invalid."""
    text = read_text(value, here, '{"cidr": "10.0.0.0/8"}')
    if text is None:
        return None
    if parse_block(text) is not None:
        return Cidr(text)
    address, _, mask = text.partition("/")
    if parse_address(address) is None:
        remedy = "Write an IPv4 or IPv6 address without leading zeros, a slash and the mask, as in 10.0.0.0/8."
    elif not mask:
        remedy = f'Add the mask: "{address}/{128 if ":" in address else 32}" is the one address.'
    else:
        remedy = f"The mask is a number from 0 to {128 if ':' in address else 32} without leading zeros."
    here.wrong(f"{shown(text)} is not a CIDR block", value, remedy)
    return None
