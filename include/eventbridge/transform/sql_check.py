"""What can be said of a Spark SQL expression without Spark: that it is one expression, and only looks at its event.

Rule files check `where` and the form SQL by it; whether an expression means anything only Spark can say.
"""

from __future__ import annotations

import re
from typing import Final

MAXIMUM_CHARACTERS: Final = 10_000

# In this order: comments, strings (raw ones first), names in backquotes, words, brackets, and what ends a statement.
_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?(?:\*/|(?P<open_comment>\Z)))
    |(?P<raw>(?<!\w)[rR](?:'[^']*'|"[^"]*"))
    |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`)
    |(?P<quote>['"`])
    |(?P<word>\w+)
    |(?P<bracket>[()\[\]{}])
    |(?P<end>;)""",
    re.DOTALL | re.VERBOSE,
)
_CLOSES = {")": "(", "]": "[", "}": "{"}

_STATEMENT: Final = frozenset(
    {"alter", "call", "create", "delete", "drop", "insert", "merge", "select", "set", "truncate", "update", "use"}
)
_QUERY: Final = frozenset({"select", "table", "values", "from", "with"})
_JAVA: Final = frozenset({"java_method", "reflect", "try_reflect"})


def expression_problem(text: str) -> tuple[str, str] | None:
    """Return what is wrong with an expression, and the remedy; None if nothing is that can be seen without Spark.

    Refused are statements and queries, also inside (they look beyond the event), windows, and calls of Java methods.
    """
    if not text.strip():
        return "the expression is empty", "Write one, such as data:amount::int > 1000"
    if len(text) > MAXIMUM_CHARACTERS:
        return f"the expression has {len(text):,} characters, and {MAXIMUM_CHARACTERS:,} are the most", "Shorten it"
    opened: list[tuple[str, int]] = []
    before = ""
    for found in _TOKEN.finditer(text):
        at, kind, token = found.start(), found.lastgroup, found[0]
        if found["open_comment"] is not None:
            return f"the expression does not close the comment, {_place(text, at)}", "Close it"
        if problem := _token_problem(text, at, kind, token, before):
            return problem
        if kind == "bracket" and token not in _CLOSES:
            opened.append((token, at))
        elif kind == "bracket" and (not opened or opened.pop()[0] != _CLOSES[token]):
            return f"the expression closes a {token} that is not open, {_place(text, at)}", "Balance the brackets"
        if kind != "comment":
            before = token
    if opened:
        return f"the expression does not close the {opened[-1][0]}, {_place(text, opened[-1][1])}", "Close it"
    return None if before else ("the expression is empty but for a comment", "Write one")


def _token_problem(text: str, at: int, kind: str | None, token: str, before: str) -> tuple[str, str] | None:
    place = _place(text, at)
    if kind == "quote":
        return f"the expression does not close the quote, {place}", "Close it"
    if kind == "end":
        return f"the expression holds a ;, {place}", "Write one expression, and no statement"
    word, called = token.lower(), text[at + len(token) :].lstrip().startswith("(")
    if called and word.strip("`") in _JAVA:
        return f"{token} calls Java, {place}", "Use Spark SQL's own functions"
    # a member of data may have any name: data:select, data:a.from
    if kind != "word" or text[:at].rstrip().endswith((":", ".")):
        return None
    if not before and word in _STATEMENT and not called:
        return f"{token.upper()} begins a statement, {place}", "Write an expression, such as data:amount::int > 1000"
    if word == "select" or (word in _QUERY and before == "("):
        return f"{token.upper()} begins a query, {place}", "An expression sees its event alone: remove the query"
    if word == "over" and before == ")":
        return f"OVER looks at other events, {place}", "An expression sees its event alone: remove the window"
    return None


def _place(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {position - text.rfind(chr(10), 0, position)}"
