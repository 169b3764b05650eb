"""Hypothesis strategies for patterns, one per operator, over a vocabulary so small that events often match."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from eventbridge.event.json_document import Number

KEYS: Final = ("a", "b", "c")
TEXTS: Final = (
    "",
    "a",
    "A",
    "ab",
    "aab",
    "ba",
    "ß",
    "SS",
    "ss",
    "a\nb",
    "😀",
    "1",
    "10.1.2.3",
    "::ffff:10.1.2.3",
    "fd00::1",
)
NUMBERS: Final = ("0", "-0", "1", "1.0", "10e-1", "2", "-1.5", "9007199254740992", "9007199254740993", "1e40", "0.1")
EXPRESSIONS: Final = ("a*b?", "[ab]+", "(a|ab)(b|)", "1|[0-9.]+", "", ".", "(?s).*", "A+|s{2}")
BLOCKS: Final = ("10.0.0.0/8", "10.1.2.3/32", "0.0.0.0/0", "fd00::/8", "::/0", "10.1.2.0/31")
WILDCARDS: Final = ("*", "a*", "*b", "a*b", "*a*b*", "", "ab", "\\*", "s*s", "*.*")

texts = st.sampled_from(TEXTS)
numbers = st.sampled_from(NUMBERS).map(Number)
scalars = st.one_of(texts, numbers, st.booleans(), st.none())
some_texts = texts.filter(bool)


def one_or_list(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return values of a strategy, or lists of them."""
    return st.one_of(strategy, st.lists(strategy, min_size=1, max_size=3))


def numeric() -> st.SearchStrategy[Any]:
    """Return a comparison, or a range that is not empty."""
    single = st.tuples(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), numbers).map(list)
    bounds = st.tuples(numbers, numbers).filter(lambda pair: pair[0] != pair[1]).map(sorted)
    double = st.tuples(st.sampled_from([">", ">="]), bounds, st.sampled_from(["<", "<="]))
    return st.one_of(single, double.map(lambda parts: [parts[0], parts[1][0], parts[2], parts[1][1]]))


def anything_but() -> st.SearchStrategy[Any]:
    """Return arguments of anything-but: scalars, or one operator with one or more strings."""
    below = {
        "prefix": some_texts,
        "suffix": some_texts,
        "contains": some_texts,
        "equals-ignore-case": texts,
        "wildcard": st.sampled_from(WILDCARDS),
        "cidr": st.sampled_from(BLOCKS),
        "regex": st.sampled_from(EXPRESSIONS),
    }
    operators = [one_or_list(strategy).map(lambda value, name=name: {name: value}) for name, strategy in below.items()]
    return st.one_of(one_or_list(scalars), *operators)


def ends() -> st.SearchStrategy[Any]:
    """Return arguments of prefix and suffix."""
    return st.one_of(texts, texts.map(lambda text: {"equals-ignore-case": text}))


ARGUMENTS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "exactly": texts,
    "prefix": ends(),
    "suffix": ends(),
    "equals-ignore-case": texts,
    "wildcard": st.sampled_from(WILDCARDS),
    "contains": texts,
    "regex": st.sampled_from(EXPRESSIONS),
    "numeric": numeric(),
    "exists": st.booleans(),
    "cidr": st.sampled_from(BLOCKS),
    "anything-but": anything_but(),
    "all": st.deferred(lambda: st.lists(conditions.filter(lambda c: c != {"exists": False}), min_size=1, max_size=2)),
}
"""What each operator of a leaf list takes."""

conditions: st.SearchStrategy[Any] = st.one_of(
    scalars,
    scalars,
    st.just({"exists": False}),
    *(argument.map(lambda value, name=name: {name: value}) for name, argument in ARGUMENTS.items()),
)
leaf_lists = st.lists(conditions, min_size=1, max_size=2)


@st.composite
def objects(draw: st.DrawFn, depth: int = 2, size: int = 2) -> dict[str, Any]:
    """Draw a non-empty sub-pattern of leaf lists, objects and sometimes a `$or`."""
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=size, unique=True))
    drawn: dict[str, Any] = {
        key: draw(objects(depth - 1, size)) if depth and draw(st.booleans()) else draw(leaf_lists) for key in keys
    }
    if depth and draw(st.integers(0, 3)) == 0:
        drawn["$or"] = draw(alternatives(depth - 1, size))
    return drawn


def alternatives(depth: int = 1, size: int = 2) -> st.SearchStrategy[list[Any]]:
    """Return arguments of `$or`."""
    return st.lists(objects(depth, size), min_size=2, max_size=2)


@st.composite
def patterns(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a pattern, sometimes with a `$not`."""
    drawn = draw(objects())
    if draw(st.integers(0, 3)) == 0:
        drawn["$not"] = draw(objects(depth=1))
    return drawn


STRATEGIES: Final[dict[str, st.SearchStrategy[Any]]] = {**ARGUMENTS, "$or": alternatives(), "$not": objects(depth=1)}
"""What every operator of the language takes; a test compares its keys with the operators there are."""
