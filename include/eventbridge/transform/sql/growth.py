"""Bounds the size of an expression's value by polynomials in the size of its event, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from eventbridge.transform.sql.functions import ARITHMETIC, HIGHER_ORDER, OF_ONE_NUMBER
from eventbridge.transform.sql.tree import Node
from eventbridge.transform.sql.types import OF_FIXED_SIZE, OF_TEXT

_ENOUGH: Final = 1 << 62
#: The maximum number of characters in a number, truth value, date, timestamp, or difference of two timestamps.
NUMBER: Final = 56
#: The maximum number of characters that text has around a member of an array, map or struct: quotes, comma, null.
AROUND: Final = 8


class Growth(NamedTuple):
    """The polynomial `fixed + linear*n + square*n*n`.

    `beyond` is the sum of the factors of n*n*n and of all higher powers; it is 0 if the value cannot grow that fast.
    """

    fixed: int = 0
    linear: int = 0
    square: int = 0
    beyond: int = 0

    def plus(self, other: Growth) -> Growth:
        """Return the sum of two polynomials."""
        return Growth(*(min(mine + theirs, _ENOUGH) for mine, theirs in zip(self, other, strict=True)))

    def times(self, other: Growth) -> Growth:
        """Return the product of two polynomials."""
        found = [0, 0, 0, 0]
        for power, mine in enumerate(self):
            for more, theirs in enumerate(other):
                at = min(power + more, 3)
                found[at] = min(found[at] + mine * theirs, _ENOUGH)
        return Growth(*found)

    def value_at(self, n: int) -> int:
        """Return the value for an event of the size n, without what `beyond` adds."""
        return self.fixed + self.linear * n + self.square * n * n


ONE: Final = Growth(1)


class Size(NamedTuple):
    """The maximum size of a value.

    `text` counts bytes of text in UTF-8 and the names of fields; `numbers` counts values of a fixed size, which take
    NUMBER characters when they are written; `items` counts the members of arrays, maps and structs at every depth.
    """

    text: Growth = Growth()
    numbers: Growth = Growth()
    items: Growth = Growth()

    def plus(self, other: Size) -> Size:
        """Return the size of two values together."""
        return Size(*(mine.plus(theirs) for mine, theirs in zip(self, other, strict=True)))

    def times(self, many: Growth) -> Size:
        """Return the size of `many` values of this size."""
        return Size(*(each.times(many) for each in self))

    def written_size(self) -> Growth:
        """Return the maximum number of bytes that the value takes when it is written as text."""
        return self.text.plus(self.numbers.times(Growth(NUMBER))).plus(self.items.times(Growth(AROUND)))


def total(sizes: Iterable[Size]) -> Size:
    """Return the size of several values together."""
    found = Size()
    for each in sizes:
        found = found.plus(each)
    return found


def text(length: Growth | int) -> Size:
    """Return the size of a string."""
    return Size(Growth(length) if isinstance(length, int) else length)


#: The maximum number of repetitions, members or characters that a call may produce.
MAXIMUM_COUNT: Final = 1_000
#: The argument that determines how many repetitions, members or characters a function produces.
COUNTS: Final = {"array_insert": 1, "array_repeat": 1, "lpad": 1, "repeat": 1, "rpad": 1, "space": 0}


def count_made(call: Node) -> int:
    """Return the maximum number of repetitions, members or characters of a call that has passed `bounds`."""
    name = str(call.value)
    many = items(call.children) if name == "sequence" else most(call.children[COUNTS[name]], name)
    return max(1, many or 1)


def max_value_of(node: Node) -> int | None:
    """Return the maximum of a number, or None if unknown."""
    return range_of(node)[1]


def range_of(node: Node) -> tuple[int | None, int | None]:
    """Return the minimum and the maximum of a number, each None if unknown."""
    number = node.whole()
    if number is not None:
        return number, number
    if node.kind != "call" or node.value not in ("least", "greatest"):
        return None, None
    lows, highs = zip(*(range_of(child) for child in node.children), strict=True)
    if node.value == "least":
        return _all(min, lows), _choose_known(min, highs)
    return _choose_known(max, lows), _all(max, highs)


def _choose_known(choose: Callable[[list[int]], int], numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return choose(known) if known else None


def _all(choose: Callable[[list[int]], int], numbers: Sequence[int | None]) -> int | None:
    return None if None in numbers else _choose_known(choose, numbers)


def most(count: Node, name: str) -> int | None:
    """Return the maximum of a count, or None if unknown or not allowed."""
    low, high = range_of(count)
    if name == "array_insert":  # a position far below zero inserts as many members as one far above
        high = None if low is None or high is None else max(abs(low), abs(high))
    return high if high is not None and high <= MAXIMUM_COUNT else None


def items(arguments: Sequence[Node]) -> int | None:
    """Return the maximum number of items of a sequence, or None if unknown."""
    (low, high), (other_low, other_high) = (range_of(each) for each in arguments[:2])
    if low is None or high is None or other_low is None or other_high is None:
        return None
    return max(other_high - low, high - other_low) + 1


#: The maximum number of characters that an expression may produce without input.
MAXIMUM_FIXED: Final = 2_000_000
#: The maximum number of bytes of a character in UTF-8.
_CHARACTER: Final = 4
#: The maximum number of characters in an interval, and the maximum number that a format adds to each value.
_LONG: Final = 100
_WIDTH: Final = 1_500

#: The maximum size of a function's result, as a multiple of the size of its arguments.
_TIMES: Final = {
    "base64": 2,
    "date_format": 32,
    "decode": 3,
    "encode": 4,
    "from_unixtime": 32,
    "get_json_object": 6,
    "hex": 2,
    "initcap": 3,
    "lcase": 3,
    "lower": 3,
    "mask": 4,
    "to_char": 32,
    "to_varchar": 32,
    "translate": 4,
    "ucase": 3,
    "upper": 3,
    "url_encode": 3,
}
#: The maximum number of characters in a function's result, for any arguments.
_AT_MOST: Final = {
    "bin": 64,
    "char": _CHARACTER,
    "chr": _CHARACTER,
    "conv": 65,
    "format_number": 512,
    "make_dt_interval": _LONG,
    "make_interval": _LONG,
    "make_ym_interval": _LONG,
    "md5": 32,
    "sha": 40,
    "sha1": 40,
    "sha2": 128,
}
#: Functions that split a string, and how many members the result has for each part.
_CUT: Final = {"json_object_keys": 1, "regexp_extract_all": 1, "split": 1, "str_to_map": 2}
#: The argument that is the maximum length of a function's result, in characters.
_LENGTHS: Final = {"left": 1, "right": 1, "substr": 2, "substring": 2}
#: The maximum factor by which a number may become longer, as when JSON's 1e6 is written as 1000000.0.
_RENDERED: Final = 4
#: The maximum length of a character in JSON, as in \\u0000.
_ESCAPED: Final = 6

#: Functions with lambdas that return some members of an array or map unchanged.
_CHOOSE: Final = frozenset({"array_sort", "filter", "map_filter"})
#: Functions with lambdas that keep the keys or values that they are given.
_KEEP: Final = frozenset({"map_zip_with", "transform_keys", "transform_values"})

_SMALL: Final = Size(numbers=ONE)
_BYTES: Final = Growth(linear=1)

Sizes = Sequence[Size]


class ValueTooLarge(Exception):
    """A value may become larger than allowed; `node` produces it."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node


def size_of(node: Node, parameters: Mapping[str, Size] | None = None) -> Size:
    """Return how large a value may become; `parameters` has the sizes of the parameters of lambdas.

    Raises ValueTooLarge, also for an intermediate value. The body of a lambda may be measured twice; the parser limits
    how deep lambdas are nested, so the time stays proportional to the size of the tree.
    """
    known = parameters or {}
    return size_with(node, [size_of(child, known) for child in node.children if child.kind != "lambda"], known)


def size_with(node: Node, sizes: Sizes, known: Mapping[str, Size]) -> Size:
    """Return what `size_of` returns, given the sizes of the children that are not lambdas."""
    size = _size_with(node, sizes, known)
    written = size.written_size()
    if written.beyond or written.fixed > MAXIMUM_FIXED or max(written.linear, written.square) > MAXIMUM_COUNT:
        raise ValueTooLarge(node)
    return size


def _size_with(node: Node, sizes: Sizes, known: Mapping[str, Size]) -> Size:
    if not node.children:
        return _leaf_size(node, known)
    match node.kind:
        case "call" if node.value in HIGHER_ORDER:
            return _lambda_size(str(node.value), node.children, sizes, known)
        case "call":
            return _call_size(node, sizes)
        case "cast":
            return _cast(node.children[0], sizes[0], str(node.value))
        case "index" | "member" | "path" | "limited":
            return sizes[0]
        case "unary":
            return _arithmetic_size(sizes)
        case "operator" if node.value != "()" and " || " not in node.parts:
            return _arithmetic_size(sizes)
    return total(sizes)


def _leaf_size(node: Node, known: Mapping[str, Size]) -> Size:
    match node.kind:
        case "parameter":
            return known[str(node.value)]
        case "column":
            return Size(_BYTES, items=_BYTES if node.value in ("data", "extensions") else Growth())
        case "text":
            return text(len(str(node.value).encode("utf-8", "surrogatepass")))
        case "number" | "constant" | "time":
            return _SMALL
        case "call":
            return _call_size(node, ())
    return text(max(_LONG, len(node.to_sql())))


def _arithmetic_size(sizes: Sizes) -> Size:
    """Return the size of a number, or of an interval if one is among the operands."""
    return Size(text(_LONG).text if any(size.text != Growth() for size in sizes) else Growth(), ONE)


def _cast(child: Node, size: Size, named: str) -> Size:
    words = set(named.replace("<", " ").replace(">", " ").replace(",", " ").replace("(", " ").lower().split())
    if not words & {"array", "map"}:
        if words & OF_FIXED_SIZE:
            return _SMALL
        if named == "VARIANT":
            return size
        is_json = child.kind == "path" or (child.kind == "column" and child.value == "data")
        return text(size.text.times(Growth(_RENDERED)) if is_json else _rendered_size(size).written_size())
    members = size.items.times(Growth(2)) if "map" in words else size.items
    return Size(
        _rendered_size(size).text if words & OF_TEXT else Growth(),
        size.numbers.plus(members) if words & OF_FIXED_SIZE else size.numbers,
        size.items,
    )


def _rendered_size(size: Size) -> Size:
    return Size(size.text.times(Growth(_RENDERED)), size.numbers, size.items)


def _call_size(call: Node, sizes: Sizes) -> Size:
    name = str(call.value)
    if name in ARITHMETIC:
        return _arithmetic_size(sizes)
    if name in OF_ONE_NUMBER:
        return _SMALL
    if name in _AT_MOST:
        return text(_AT_MOST[name])
    if name in _RULES:
        return _RULES[name](call, sizes)
    if name in _LENGTHS and len(sizes) > _LENGTHS[name]:
        most = max_value_of(call.children[_LENGTHS[name]])
        if most is not None:
            return text(max(most, 0) * _CHARACTER)
    if name in _CUT:
        whole = sizes[0].written_size()
        return Size(whole, items=whole.plus(ONE).times(Growth(_CUT[name])))
    together = total(sizes)
    if name in _TIMES:
        return text(together.written_size().plus(ONE).times(Growth(_TIMES[name])))
    return together.plus(Size(items=Growth(len(sizes))))


def _lambda_size(name: str, arguments: Sequence[Node], sizes: Sizes, known: Mapping[str, Size]) -> Size:
    given = total(sizes)
    lambdas = [each for each in arguments if each.kind == "lambda"]
    if name in ("aggregate", "reduce", "exists", "forall") or name in _CHOOSE:
        # only the value for one member exists at a time, and the accumulator of aggregate has a fixed size
        made_of = [_body(each, known, given.plus(_SMALL)) for each in lambdas]
        if name in ("exists", "forall"):
            return _SMALL
        return made_of[-1].plus(given) if name in ("aggregate", "reduce") and made_of else given
    found = given if name in _KEEP else Size()
    for each in lambdas:
        # what comes from members grows like all members together; the rest is produced once for each member
        found = found.plus(_body(each, known, given)).plus(_body(each, known, _SMALL).times(given.items.plus(ONE)))
    return found.plus(Size(items=given.items)) if lambdas else given


def _body(function: Node, known: Mapping[str, Size], value: Size) -> Size:
    return size_of(function.children[0], {**known, **dict.fromkeys(str(function.value).split(), value)})


def _replaced_size(call: Node, sizes: Sizes) -> Size:
    if len(sizes) < 3:
        return sizes[0]
    each = sizes[2].written_size().plus(ONE)
    found, put = (argument.literal_text() for argument in call.children[1:3])
    if call.value == "replace" and found and put is not None:
        length = len(found.encode("utf-8", "surrogatepass"))
        each = Growth(max(1, -(-len(put.encode("utf-8", "surrogatepass")) // length)))
    # groups capture no more than the match, since `patterns` rejects those inside a look-around
    return text(sizes[0].written_size().plus(ONE).times(each))


def _joined_size(_call: Node, sizes: Sizes) -> Size:
    between = total(sizes[1:]).written_size()
    return text(sizes[0].written_size().plus(sizes[0].items.plus(ONE).times(between)))


def _with_separator(_call: Node, sizes: Sizes) -> Size:
    rest = total(sizes[1:])
    return text(rest.written_size().plus(rest.items.plus(Growth(len(sizes))).times(sizes[0].written_size())))


def _formatted_size(call: Node, sizes: Sizes) -> Size:
    marks = (call.children[0].literal_text() or "").count("%")
    each = (
        total(sizes[1:]).written_size().times(Growth(3)).plus(Growth(_WIDTH))
    )  # %S converts to upper case, which may be longer
    return text(sizes[0].text.plus(each.times(Growth(marks))))


def _repeated(call: Node, sizes: Sizes) -> Size:
    many = Growth(count_made(call))
    if call.value == "repeat":
        return text(sizes[0].written_size().plus(ONE).times(many))
    return sizes[0].plus(Size(items=ONE)).times(many)


def _filled_size(call: Node, sizes: Sizes) -> Size:
    if len(call.children) <= COUNTS[str(call.value)]:
        return total(sizes)
    many = Growth(count_made(call) * _CHARACTER)
    if call.value == "array_insert":
        return total(sizes).plus(Size(items=many.plus(ONE)))
    return text(total(sizes).written_size().plus(many))


def _sequence(call: Node, _sizes: Sizes) -> Size:
    many = Growth(count_made(call))
    return Size(numbers=many, items=many)


def _zipped(call: Node, sizes: Sizes) -> Size:
    together = total(sizes)
    rows = together.items.plus(ONE)
    names = sum(_name(child) for child in call.children)
    return Size(together.text.plus(rows.times(Growth(names))), together.numbers, rows.times(Growth(len(sizes) + 1)))


def _struct(call: Node, sizes: Sizes) -> Size:
    return total(sizes).plus(Size(Growth(sum(map(_name, call.children))), items=Growth(len(sizes))))


def _name(field: Node) -> int:
    """Return the length of the name that a field of a struct gets from its expression."""
    named = field.kind in ("named", "member", "column", "parameter") and field.value is not None
    return len(str(field.value).encode()) if named else AROUND


def _entries(_call: Node, sizes: Sizes) -> Size:
    items = sizes[0].items
    return Size(sizes[0].text.plus(items.times(Growth(len("keyvalue")))), sizes[0].numbers, items.times(Growth(3)))


def _parsed_size(_call: Node, sizes: Sizes) -> Size:
    return Size(sizes[0].written_size(), items=sizes[0].written_size())


def _as_json(_call: Node, sizes: Sizes) -> Size:
    escaped = total(sizes).text.times(Growth(_ESCAPED))
    return text(Size(escaped, sizes[0].numbers, sizes[0].items.plus(ONE)).written_size())


def _got(call: Node, sizes: Sizes) -> Size:
    if len(call.children) < 3:
        return sizes[0]
    return _cast(call.children[0], sizes[0], (call.children[2].literal_text() or "").upper())


def _string(call: Node, sizes: Sizes) -> Size:
    return _cast(call.children[0], sizes[0], str(call.value).upper())


_RULES: Final[dict[str, Callable[[Node, Sizes], Size]]] = {
    **dict.fromkeys(("array_repeat", "repeat"), _repeated),
    **dict.fromkeys(("array_insert", "lpad", "rpad", "space"), _filled_size),
    **dict.fromkeys(("binary", "string"), _string),
    **dict.fromkeys(("format_string", "printf"), _formatted_size),
    **dict.fromkeys(("parse_json", "try_parse_json"), _parsed_size),
    **dict.fromkeys(("regexp_replace", "replace"), _replaced_size),
    **dict.fromkeys(("try_variant_get", "variant_get"), _got),
    "array_join": _joined_size,
    "arrays_zip": _zipped,
    "concat_ws": _with_separator,
    "map_entries": _entries,
    "sequence": _sequence,
    "struct": _struct,
    "to_json": _as_json,
}
