"""How large the value of an expression may become, as a polynomial in the size of its event, found without Spark.

A size counts characters, and each member of an array or map as one more. `Size(a, b, c, d)` is `a + b*n + c*n*n` for
an event of the size `n`; `d` is above 0 if the value may grow as the cube of the event, or faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from eventbridge.transform.sql.counts import COUNTS, MAXIMUM_COUNT, made, most_of
from eventbridge.transform.sql.functions import HIGHER_ORDER
from eventbridge.transform.sql.tree import Node
from eventbridge.transform.sql.types import OF_FIXED_SIZE

#: The most characters that an expression may make out of nothing.
MAXIMUM_FIXED: Final = 2_000_000
_LONGEST_NUMBER: Final = 64
_ENOUGH: Final = 1 << 62

#: How many times as large a function's result may be as its arguments together; 1 for all others.
_TIMES: Final = {
    "base64": 2,
    "date_format": 32,
    "decode": 3,
    "encode": 4,
    "from_unixtime": 32,
    "hex": 2,
    "lower": 3,
    "lcase": 3,
    "initcap": 3,
    "to_char": 2,
    "to_json": 6,
    "to_varchar": 2,
    "ucase": 3,
    "upper": 3,
    "url_encode": 9,
}
#: Functions that return some members of an array or map as they are, or say something of them.
_CHOOSE: Final = frozenset({"array_sort", "exists", "filter", "forall", "map_filter"})
#: Which argument is the greatest length of the result.
_LENGTHS: Final = {"left": 1, "right": 1, "substr": 2, "substring": 2}
#: Functions that return at most as many members as they are given.
_KEEP_COUNT: Final = _CHOOSE | {"array_compact", "array_distinct", "slice", "sort_array", "transform"}


class Size(NamedTuple):
    """The largest size of a value; see the module."""

    fixed: int = 0
    linear: int = 0
    square: int = 0
    beyond: int = 0

    def plus(self, other: Size) -> Size:
        """Return the size of two values side by side."""
        return Size(*(min(mine + theirs, _ENOUGH) for mine, theirs in zip(self, other, strict=True)))

    def times(self, other: Size) -> Size:
        """Return the size of a value for each character of another one."""
        found = [0, 0, 0, 0]
        for power, mine in enumerate(self):
            for more, theirs in enumerate(other):
                at = min(power + more, 3)
                found[at] = min(found[at] + mine * theirs, _ENOUGH)
        return Size(*found)


_ONE: Final = Size(1)
_SMALL: Final = Size(_LONGEST_NUMBER)
_COLUMN: Final = Size(linear=1)


class TooLarge(Exception):
    """A value may become larger than it may be; `node` makes it."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node


def size_of(node: Node, parameters: Mapping[str, Size] | None = None) -> Size:
    """Return how large a value may become; `parameters` are the sizes of lambdas' values.

    Raises TooLarge, also for a value that only another one is made of.
    """
    size = _size_of(node, parameters or {})
    if size.beyond or size.fixed > MAXIMUM_FIXED or max(size.linear, size.square) > MAXIMUM_COUNT:
        raise TooLarge(node)
    return size


def _size_of(node: Node, known: Mapping[str, Size]) -> Size:
    match node.kind:
        case "column":
            return _COLUMN
        case "parameter":
            return known[str(node.value)]
        case "text":
            return Size(len(str(node.value)))
        case "call":
            return _of_call(node, known)
    sizes = [size_of(child, known) for child in node.children]
    if node.kind == "cast" and str(node.value).partition("(")[0].lower() in OF_FIXED_SIZE:
        return _SMALL
    if node.kind in ("index", "member", "path"):
        return sizes[0]
    return _sum(sizes) if sizes else Size(max(_LONGEST_NUMBER, len(node.written())))


def _of_call(call: Node, known: Mapping[str, Size]) -> Size:
    name, arguments = str(call.value), call.children
    if name in HIGHER_ORDER:
        return _of_lambdas(name, arguments, known)
    sizes = [size_of(each, known) for each in arguments]
    together = _sum(sizes).plus(Size(len(sizes)))
    if name in ("replace", "regexp_replace"):
        return sizes[0].plus(_ONE).times(_replacement(arguments, sizes, pattern=name != "replace"))
    if name == "array_join":
        return sizes[0].times(_sum([_ONE, *sizes[1:]]))
    if name == "concat_ws":
        return _sum(sizes[1:]).plus(Size(len(sizes))).times(sizes[0].plus(_ONE))
    if name in ("format_string", "printf"):
        marks = (arguments[0].literal_text() or "").count("%")
        return sizes[0].plus(_sum(sizes[1:]).plus(Size(1_000)).times(Size(marks)))
    if name == "arrays_zip":
        return together.times(Size(len(sizes)))
    if name in _LENGTHS and len(arguments) > _LENGTHS[name]:
        most = most_of(arguments[_LENGTHS[name]])
        return together if most is None else Size(max(most, 0))
    if name == "sequence" or (name in COUNTS and len(arguments) > COUNTS[name]):
        many = made(call)
        if name in ("repeat", "array_repeat"):
            return sizes[0].plus(_ONE).times(Size(many))
        return together.plus(Size(many * (_LONGEST_NUMBER if name == "sequence" else 1)))
    return together.times(Size(_TIMES.get(name, 1)))


def _of_lambdas(name: str, arguments: Sequence[Node], known: Mapping[str, Size]) -> Size:
    given = _sum([size_of(each, known) for each in arguments if each.kind != "lambda"])
    carries = name in ("aggregate", "reduce")  # what it carries along has a fixed size
    if carries or name in _CHOOSE:
        made_of = [_body(each, known, given.plus(_SMALL)) for each in arguments if each.kind == "lambda"]
        return made_of[-1] if carries and len(made_of) == 2 else given
    items = _items(arguments[0])
    total = given
    for each in arguments:
        if each.kind == "lambda":
            # what is made of a member alone grows as all members together; the rest is made once for each member
            total = _body(each, known, given).plus((items or given).times(_body(each, known, Size())))
    return total.plus(given if items is None else items)


def _body(function: Node, known: Mapping[str, Size], value: Size) -> Size:
    return size_of(function.children[0], {**known, **dict.fromkeys(str(function.value).split(), value)})


def _items(array: Node) -> Size | None:
    if array.kind != "call":
        return None
    if array.value == "array":
        return Size(len(array.children))
    if array.value in ("sequence", "array_repeat"):
        return Size(made(array))
    return _items(array.children[0]) if array.value in _KEEP_COUNT and array.children else None


def _replacement(arguments: Sequence[Node], sizes: Sequence[Size], *, pattern: bool) -> Size:
    """Return how much stands for each character of a text in which something is replaced."""
    if len(arguments) < 3:
        return _ONE
    found, put = arguments[1].literal_text(), arguments[2].literal_text()
    if found is None or put is None or pattern:
        return sizes[2].plus(_ONE)
    return Size(max(1, -(-len(put) // max(1, len(found)))))


def _sum(sizes: Sequence[Size]) -> Size:
    total = Size()
    for each in sizes:
        total = total.plus(each)
    return total
