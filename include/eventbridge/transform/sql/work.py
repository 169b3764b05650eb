"""Bounds the time that lambdas take by polynomials in the size of the event.

If a lambda's body reads only its own member and constants, the time for all members is proportional to the size of the
event. If it reads a column, a parameter of an enclosing lambda or another array, it takes that time again for each
member. Spark cannot stop such a call, so `run_time_limits.limit_members` limits its members before it starts.

Times are in nanoseconds, measured on Spark 4.2 for the slowest function of each kind and rounded up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from eventbridge.transform.sql.functions import HIGHER_ORDER, OF_ONE_NUMBER, words
from eventbridge.transform.sql.growth import ONE, Growth, Size, size_with, total
from eventbridge.transform.sql.patterns import MAXIMUM_TRIES
from eventbridge.transform.sql.run_time_limits import (
    COMPARED_INSIDE,
    EVENT,
    PAIRWISE,
    MemberTime,
    limit_members,
    tries_of_text,
)
from eventbridge.transform.sql.searches import SEARCHES
from eventbridge.transform.sql.tree import Node
from eventbridge.transform.sql.types import OF_FIXED_SIZE

#: The maximum time of all lambdas of an expression for one event, in nanoseconds.
MAXIMUM_WORK: Final = 30_000_000_000
#: The default maximum size of an event, in bytes. Lambdas that may exceed their time for such an event get a limit.
_LARGEST: Final = 1 << 20
#: The number of times that a sort calls its comparator for each member: the logarithm of the maximum number of members
#: in an event.
_SORTED: Final = 20
#: The number of times that a sort reads all members. A long member may be compared with every other one, but then those
#: are short.
_LONG_SORTED: Final = 2
#: Spark copies all of `data` to read a member of it. Copying this many bytes takes as long as reading one.
_COPIED: Final = 64
#: The time for each pair of members if the sender of an event has chosen members that all have the same hash.
_SAME_HASH: Final = 1
#: The number of bytes that Java compares in a nanosecond while it searches for one string in another, and the number
#: for `split_part`, which uses a regular expression and is slower.
_SEARCHED_BYTES: Final = 4
_SPLIT_BYTES: Final = 1
_SMALL: Final = Size(numbers=ONE)


class Weight(NamedTuple):
    """The time of a node: a fixed part, a part for each byte of text, and a part for each number or member."""

    alone: int
    byte: int
    item: int

    def time_for(self, size: Size) -> Growth:
        """Return the time for values of the given size."""
        items = size.numbers.plus(size.items)
        return Growth(self.alone).plus(size.text.times(Growth(self.byte))).plus(items.times(Growth(self.item)))


_LEAF: Final = Weight(100, 1, 0)
_PLAIN: Final = Weight(100, 20, 20)
_PATH: Final = Weight(500, 1, 1)
_CAST: Final = Weight(1_000, 20, 1)
_CAST_TEXT: Final = Weight(1_000, 50, 50)
_CAST_MEMBERS: Final = Weight(1_000, 50, 1_200)
_CALL: Final = Weight(1_000, 60, 500)
_LIMITED: Final = Weight(1_500, 50, 20)
_REMOVE: Final = Weight(1_000, 500, 500)
_QUICK_CALL: Final = Weight(200, 10, 20)
_SORT: Final = Weight(1_000, 60, 1_000)
#: The time to compare two nested members, for each number in them.
_COMPARISON: Final = 250
#: The time of one try to match a pattern, and of one match.
_TRY: Final = 5
_MATCH: Final = 500

_QUICK: Final = words(
    """
    array_size bit_length cardinality char_length character_length coalesce contains endswith get if ifnull isnotnull
    isnull len length nvl nvl2 octet_length size startswith
    """
)
_SEARCHING: Final = frozenset(SEARCHES) | {"find_in_set"}
_REMOVING: Final = words("btrim ltrim rtrim trim")
_HASHING: Final = words("array_distinct array_except array_intersect array_union arrays_overlap")
_SORTING: Final = words("array_sort sort_array")
#: Functions that return members of their first argument unchanged.
_SAME_MEMBERS: Final = words("array_compact array_distinct array_remove array_sort filter reverse slice sort_array")

_OF_KIND: Final = {"limited": _LIMITED, "path": _PATH}
#: The written type of an array or map of simple values, and the types of the members that some functions return.
_OF_SIMPLE: Final = re.compile(r"(?:ARRAY|MAP)<([^<>]*)>")
_MADE: Final = {"sequence": frozenset({"bigint"}), "split": frozenset({"string"})}

Sizes = Mapping[str, Size]


def with_limits(root: Node) -> Node:
    """Return a tree whose calls fail for an event with so many members that the lambdas would take too long."""
    share = MAXIMUM_WORK // max(1, _count(root))
    meter = _Meter(share)
    meter.measure(root, {}, frozenset())
    return _rewritten(root, meter.limits) if meter.limits else root


def _count(node: Node) -> int:
    return (node.kind == "call" and node.value in HIGHER_ORDER) + sum(map(_count, node.children))


def _rewritten(node: Node, limits: Mapping[int, MemberTime]) -> Node:
    parts = tuple(_rewritten(part, limits) if isinstance(part, Node) else part for part in node.parts)
    if id(node) in limits:
        arrays = set(map(id, _arrays(node)))
        parts = tuple(
            limit_members(made, str(node.value), limits[id(node)])
            if isinstance(made, Node) and id(part) in arrays
            else made
            for part, made in zip(node.parts, parts, strict=True)
        )
    return Node(node.kind, node.at, parts, node.value)


def _arrays(call: Node) -> Sequence[Node]:
    """Return the arguments whose members a call passes to its lambdas."""
    given = [each for each in call.children if each.kind != "lambda"]
    return given[:1] if call.value in ("aggregate", "reduce") else given


class _Meter:
    """Measures nodes; `limits` has the times of the calls whose lambdas need a limit, by the identity of the call."""

    def __init__(self, share: int) -> None:
        self.limits: dict[int, MemberTime] = {}
        self._share = share

    def measure(self, node: Node, known: Sizes, growing: frozenset[str]) -> tuple[Size, Growth]:
        """Return the size of a node's value and the time to compute it.

        `known` has the sizes of the parameters of lambdas, and `growing` has the names of those whose size stands for
        all members of an array.
        """
        found = [self.measure(child, known, growing) for child in node.children if child.kind != "lambda"]
        sizes = [size for size, _ in found]
        size = size_with(node, sizes, known)
        time = Growth()
        for _, each in found:
            time = time.plus(each)
        if node.kind == "call" and node.value in HIGHER_ORDER and len(sizes) < len(node.children):
            return size, time.plus(self._lambdas(node, sizes, known, growing))
        return size, time.plus(_own_time(node, sizes, size, growing))

    def _lambdas(self, call: Node, sizes: Sequence[Size], known: Sizes, growing: frozenset[str]) -> Growth:
        given = total(sizes)
        each, together, finish = self._times(call, given, known, growing)
        members = given.items.plus(ONE)
        time = members.times(each).plus(together).plus(finish)
        if max(_time_at(members.times(each), _LARGEST), _time_at(together, _LARGEST)) <= self._share:
            return time
        if id(call) not in self.limits:
            bounded = together if _time_at(together, _LARGEST) > self._share else Growth()
            self.limits[id(call)] = MemberTime(each, bounded, self._share, _read(call, growing))
        if not growing:
            return time
        # The limit bounds the time for a growing parameter of an enclosing lambda, for all its members together.
        alone = {**known, **dict.fromkeys(growing, _SMALL)}
        arrays = [self.measure(child, alone, frozenset())[0] for child in call.children if child.kind != "lambda"]
        return members.times(self._times(call, total(arrays), alone, frozenset())[0]).plus(together).plus(finish)

    def _times(self, call: Node, given: Size, known: Sizes, growing: frozenset[str]) -> tuple[Growth, Growth, Growth]:
        """Return the time of the lambdas for each member, for all members together, and after the last member."""
        fixed = all(map(_has_fixed_members, _arrays(call)))
        each, together, finish = Growth(), Growth(), Growth()
        for at, function in enumerate(child for child in call.children if child.kind == "lambda"):
            names = str(function.value).split()
            small = set(names if fixed else _fixed_size_parameters(str(call.value), names))
            many = {name: _SMALL if name in small else given for name in names}
            whole = self._body(function, {**known, **many}, growing.union(set(names) - small))
            one = self._body(function, {**known, **dict.fromkeys(names, _SMALL)}, growing.difference(names))
            if at and call.value in ("aggregate", "reduce"):
                finish = one
            elif call.value == "array_sort":
                each = whole.times(Growth(_LONG_SORTED)).plus(one.times(Growth(_SORTED)))
            else:
                each, together = each.plus(one), together.plus(whole)
        return each, together, finish

    def _body(self, function: Node, known: Sizes, growing: frozenset[str]) -> Growth:
        return self.measure(function.children[0], known, growing)[1].plus(Growth(100))


def _read(call: Node, growing: frozenset[str]) -> str:
    """Return, as SQL, how many bytes a call's lambdas read, in the parts that they name or in the whole event."""
    found: dict[str, None] = {}
    for function in call.children:
        if function.kind == "lambda" and not _collect(function, growing, found):
            return EVENT
    return " + ".join([f"{EVENT} / {_COPIED}", *found]) if call.value != "array_sort" else EVENT


def _collect(node: Node, growing: frozenset[str], found: dict[str, None]) -> bool:
    """Collect the lengths of the columns, and of the members of `data`, that a node reads; return False if it reads
    everything."""
    if node.kind == "path" and node.children[0].kind == "column":
        found[f"coalesce(length(CAST({node.to_sql()} AS STRING)), 0)"] = None
        return True
    if node.kind == "column":
        found[f"coalesce(octet_length({node.to_sql()}), 0)"] = None
        return node.value not in ("data", "extensions")
    if node.kind == "parameter" and node.value in growing:
        return False
    return all(_collect(child, growing, found) for child in node.children)


def _time_at(time: Growth, n: int) -> int:
    return time.value_at(n) + time.beyond * n**3


def _fixed_size_parameters(name: str, names: Sequence[str]) -> Sequence[str]:
    """Return those parameters of a lambda that have a fixed size for any array: accumulators and indexes."""
    if name in ("aggregate", "reduce"):
        return names[:1]
    return names[1:] if name in ("filter", "transform") else ()


def _own_time(node: Node, sizes: Sequence[Size], size: Size, growing: frozenset[str]) -> Growth:
    """Return the time of a node without that of its children."""
    if not node.children:
        return _LEAF.time_for(size)
    around = total(sizes).plus(size)
    name = str(node.value)
    tries = tries_of_text(node)
    if tries is not None:
        grows = _grows(node.children[0], growing)
        return _CALL.time_for(around).plus(
            _tries_time(sizes[0]._replace(items=Growth()).written_size(), tries, grows=grows)
        )
    if node.kind == "cast":
        return _cast_weight(name).time_for(around)
    if node.kind != "call":
        return _OF_KIND.get(node.kind, _PLAIN).time_for(around)
    if name in ("variant_get", "try_variant_get"):
        return _cast_weight("VARIANT" if len(sizes) < 3 else (node.children[2].literal_text() or "").upper()).time_for(
            around
        )
    if name in _SEARCHING:
        speed = _SPLIT_BYTES if name == "split_part" else _SEARCHED_BYTES
        return _CALL.time_for(around).plus(_search_time(sizes[0].written_size(), sizes[1].written_size(), speed))
    return _call_time(node, sizes, around, growing)


def _call_time(call: Node, sizes: Sequence[Size], around: Size, growing: frozenset[str]) -> Growth:
    name = str(call.value)
    if name in PAIRWISE and not all(map(_hashes, call.children[: PAIRWISE[name]])):
        return Weight(_CALL.alone, _COMPARISON * COMPARED_INSIDE, _COMPARISON * COMPARED_INSIDE).time_for(around)
    if name in _HASHING:
        items = Growth() if any(_grows(each, growing) for each in call.children) else total(sizes).items
        return _SORT.time_for(around).plus(items.times(items).times(Growth(_SAME_HASH)))
    if name in _SORTING:
        return _SORT.time_for(around)
    if name in _REMOVING and len(sizes) > 1:
        return _REMOVE.time_for(around)
    return (_QUICK_CALL if name in _QUICK else _CALL).time_for(around)


def _cast_weight(named: str) -> Weight:
    if named.startswith(("ARRAY", "MAP")):
        return _CAST_MEMBERS
    if named == "VARIANT":
        return _PATH
    return _CAST_TEXT if named in ("STRING", "BINARY") or named.startswith("DEC") else _CAST


def _search_time(one: Growth, other: Growth, speed: int) -> Growth:
    """Return the time to search for one string in another; their order does not matter."""
    return Growth(*(-(-factor // speed) for factor in one.times(other)))


def _tries_time(length: Growth, tries: int, *, grows: bool) -> Growth:
    """Return the time to match a pattern, for each character of the string or for the longest string it accepts."""
    if tries * _TRY <= _MATCH:
        return length.times(Growth(_MATCH))
    of_text = length.times(Growth(tries * _TRY))
    return of_text if grows or of_text == Growth(of_text.fixed) else Growth(MAXIMUM_TRIES * _TRY)


def _grows(node: Node, growing: frozenset[str]) -> bool:
    """Whether a value is computed from a parameter that represents all members of an array."""
    return node.value in growing if node.kind == "parameter" else any(_grows(each, growing) for each in node.children)


def _has_fixed_members(array: Node) -> bool:
    """Whether the expression of an array or map shows that its members have a fixed size, as numbers and dates do."""
    return bool(found := _members(array)) and found <= OF_FIXED_SIZE


def _hashes(array: Node) -> bool:
    """Whether the expression of an array shows that Spark can hash its members."""
    return bool(found := _members(array)) and not found & {"binary", "variant"}


def _members(array: Node) -> frozenset[str]:
    """Return the simple types of an array's or map's members, empty if they are unknown or not simple."""
    if array.kind == "limited" or (array.kind == "call" and array.value in _SAME_MEMBERS):
        return _members(array.children[0])
    if array.kind == "cast" and (found := _OF_SIMPLE.fullmatch(str(array.value))):
        return frozenset(re.sub(r"\([^)]*\)", "", found[1]).lower().replace(",", " ").split())
    if array.kind != "call":
        return frozenset()
    if array.value == "transform":
        made = array.children[1].children[:1]
        return frozenset({"double"}) if made and _is_fixed(made[0]) else frozenset()
    return _MADE.get(str(array.value), frozenset())


def _is_fixed(node: Node) -> bool:
    if node.kind == "cast":
        return str(node.value).partition("(")[0].lower() in OF_FIXED_SIZE
    return node.kind == "number" or (node.kind == "call" and node.value in OF_ONE_NUMBER)
