"""Limits the arguments of calls, so that no call multiplies its input beyond a maximum or runs forever."""

from __future__ import annotations

import re
from typing import Final

from eventbridge.transform.sql.growth import COUNTS, MAXIMUM_COUNT, ValueTooLarge, items, most, range_of, size_of
from eventbridge.transform.sql.patterns import pattern_problem
from eventbridge.transform.sql.tree import Node
from eventbridge.transform.sql.types import OF_FIXED_SIZE, is_type

#: The maximum number of digits, before or after the decimal point, to which a function may round or format.
_MAX_DIGITS: Final = 38

#: The argument of a function that is a number of digits.
_DIGITS: Final = {"bround": 1, "ceil": 1, "ceiling": 1, "floor": 1, "format_number": 1, "round": 1}
#: Those arguments of a function that are regular expressions.
PATTERNS: Final = {
    "parse_url": (2,),
    "regexp": (1,),
    "regexp_count": (1,),
    "regexp_extract": (1,),
    "regexp_extract_all": (1,),
    "regexp_instr": (1,),
    "regexp_like": (1,),
    "regexp_replace": (1,),
    "regexp_substr": (1,),
    "rlike": (1,),
    "split": (1,),
    "str_to_map": (1, 2),
    "try_parse_url": (2,),
}
#: Text that Java may read as a format specifier, without its final letter, and the numbers in it.
_SPECIFIER: Final = re.compile(r"%[^a-zA-Z%]*")
_NUMBERS: Final = re.compile(r"\d+")
_CAPITALS: Final = re.compile(r"%[^a-zA-Z%]*S")

#: The positions of those arguments of a function that must be lambdas.
_LAMBDAS: Final = {
    **dict.fromkeys(("aggregate", "map_zip_with", "reduce", "zip_with"), (2, 3)),
    **dict.fromkeys(("array_sort", "exists", "filter", "forall", "map_filter", "transform"), (1,)),
    **dict.fromkeys(("transform_keys", "transform_values"), (1,)),
}

Problem = tuple[Node, str, str]


def call_problem(name: str, arguments: list[Node]) -> Problem | None:
    """Return the error in the arguments of a call as (node, problem, remedy), or None if there is none."""
    return _lambdas_problem(name, arguments) or _values_problem(name, arguments)


def _values_problem(name: str, arguments: list[Node]) -> Problem | None:
    if name in COUNTS and len(arguments) > COUNTS[name] and most(arguments[COUNTS[name]], name) is None:
        return _uncounted(name, arguments[COUNTS[name]])
    if name == "sequence":
        return _sequence_problem(arguments)
    if name in _DIGITS and len(arguments) > _DIGITS[name]:
        return _digits_problem(name, arguments[_DIGITS[name]])
    for index in PATTERNS.get(name, ()):
        if len(arguments) > index and (problem := regex_problem(arguments[index])):
            return problem
    if name in ("format_string", "printf"):
        return _format_problem(name, arguments[0])
    if name in ("variant_get", "try_variant_get") and len(arguments) == 3:
        wanted = arguments[2].literal_text()
        if wanted is None or not is_type(wanted):
            return arguments[2], f"{name} needs a type in quotes here", "Write 'int' or 'string', for example"
    if name in ("aggregate", "reduce") and not _has_fixed_size(arguments[1]):
        return (
            arguments[1],
            f"{name} must start with a number, a date or a truth value, or its result could grow without limit",
            "Start with 0L or CAST(0 AS DOUBLE), or use array_join for texts",
        )
    return None


def _lambdas_problem(name: str, arguments: list[Node]) -> Problem | None:
    """Return the error if a lambda is missing or misplaced; Spark would evaluate a plain value for each member."""
    for at, argument in enumerate(arguments):
        needed = at in _LAMBDAS.get(name, ())
        if needed and argument.kind != "lambda":
            return argument, f"{name} needs a lambda here", "Write x -> before it"
        if not needed and argument.kind == "lambda":
            return argument, f"{name} needs a value here, but this is a lambda", "Write the lambda after the values"
    return None


def regex_problem(pattern: Node) -> Problem | None:
    """Return the error in a node that Spark uses as a regular expression, or None if there is none."""
    text = pattern.literal_text()
    if text is None:
        return (
            pattern,
            "a pattern must be a text in quotes",
            "Write it in quotes, or use contains, startswith or endswith",
        )
    if problem := pattern_problem(text):
        return pattern, f"the pattern may take forever or cannot be checked: {problem}", "Simplify it"
    return None


def tree_problem(root: Node) -> Problem | None:
    """Return the error if nested calls may produce too large a value, or None if they cannot."""
    try:
        size_of(root)
    except ValueTooLarge as too_large:
        problem = f"nested calls may produce more than {MAXIMUM_COUNT:,} times their input"
        remedy = "Use smaller numbers, or left(x, 100) for a text that stands for each part of another one"
        return too_large.node, problem, remedy
    return None


def _uncounted(name: str, argument: Node) -> Problem:
    problem = f"{name} needs a whole number up to {MAXIMUM_COUNT:,} here"
    remedy = "least(greatest(x, 1), 100)" if name in ("sequence", "array_insert") else "least(x, 100)"
    return argument, problem, f"Write one, or {remedy}"


def _digits_problem(name: str, argument: Node) -> Problem | None:
    digits = argument.whole()
    if digits is not None and abs(digits) <= _MAX_DIGITS:
        return None
    remedy = f"Write a number of digits up to {_MAX_DIGITS}, such as 2"
    return argument, f"{name} needs a whole number here", remedy


def _sequence_problem(arguments: list[Node]) -> Problem | None:
    for argument in arguments[:2]:
        if None in range_of(argument):
            return _uncounted("sequence", argument)
    many = items(arguments)
    if many is None or many > MAXIMUM_COUNT:
        return _uncounted("sequence", arguments[1])
    if len(arguments) > 2 and not arguments[2].whole():
        return arguments[2], "the step of a sequence must be a whole number other than 0", "Write 1, for example"
    return None


def _format_problem(name: str, given: Node) -> Problem | None:
    text = given.literal_text()
    if _CAPITALS.search((text or "").replace("%%", "")):
        return (
            given,
            f"{name} may take forever with %S, because Java converts the case of each character separately",
            "Write %s, and upper(x)",
        )
    widths = [found for part in _SPECIFIER.findall(text or "") for found in _NUMBERS.findall(part)]
    if text is None or any(len(width) > 3 for width in widths):
        remedy = "Write it in quotes, with widths below 1,000"
        return given, f"{name} needs a format in quotes with small widths here", remedy
    return None


def _has_fixed_size(node: Node) -> bool:
    match node.kind:
        case "number" | "time":
            return True
        case "constant":
            return node.value != "null"
        case "cast":
            return str(node.value).partition("(")[0].lower() in OF_FIXED_SIZE
        case "unary" | "named":
            return _has_fixed_size(node.children[0])
        case "call" if node.value == "named_struct":
            return all(_has_fixed_size(child) for child in node.children[1::2])
        case "call" if node.value == "struct":
            return all(_has_fixed_size(child) for child in node.children)
    return False
