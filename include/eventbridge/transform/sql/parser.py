"""Parses an SQL expression into a tree, with Spark's operator precedence and an explicit list of allowed parts.

Anything that is not on the list is rejected with its position. The text that goes to Spark is written from the tree
with brackets around every operator, so that Spark cannot parse it differently; see `tree.Node.to_sql`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NoReturn

from eventbridge.transform.sql.bounds import regex_problem, tree_problem
from eventbridge.transform.sql.calls import Calls
from eventbridge.transform.sql.lexer import SqlError, quote
from eventbridge.transform.sql.reader import MAXIMUM_DEPTH
from eventbridge.transform.sql.run_time_limits import like_limit, limit_decimal, limit_for_like, limit_for_patterns
from eventbridge.transform.sql.tree import Node, join_nodes
from eventbridge.transform.sql.types import TypeReader
from eventbridge.transform.sql.work import with_limits

MAXIMUM_CHARACTERS: Final = 10_000
#: The maximum number of % in a LIKE pattern, not counting one at its end, for messages; `like_limit` enforces it.
_MAX_WILDCARDS: Final = 3

#: Left-associative operators, from the weakest to the strongest.
_LEVELS: Final = (
    ("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"),
    ("|",),
    ("^",),
    ("&",),
    ("+", "-", "||"),
    ("*", "/", "%", "div"),
)
#: The symbols that may follow an operand, and the kinds of operands that only a cast may follow.
_BEHIND: Final = frozenset({"::", "[", ".", ":"})
_LITERALS: Final = frozenset({"bytes", "constant", "interval", "number", "text", "time"})
_FIELD: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ -]*")


class Parser(Calls):
    """The parser of one expression, which raises SqlError for anything that is not on the list."""

    def whole(self) -> Node:
        """Return the tree of the whole expression."""
        if self._peek().kind == "end":
            raise SqlError("the expression is empty", "Write one, such as data:amount::int > 1000")
        root = self.expression()
        token = self._peek()
        if token.kind != "end":
            self._unexpected()
        if problem := tree_problem(root):
            self._refuse_node(problem)
        return with_limits(root)

    def expression(self) -> Node:
        """Return the tree of an expression, which may join conditions by OR and AND."""
        with self.deeper():
            return self._join("or", lambda: self._join("and", self._negated))

    def _join(self, word: str, operand: Callable[[], Node]) -> Node:
        operands = [operand()]
        while self._take(word):
            operands.append(operand())
        if len(operands) == 1:
            return operands[0]
        return self._node("operator", operands[0].at, "(", *join_nodes(operands, f" {word.upper()} "), ")", value=word)

    def _negated(self) -> Node:
        at = self._peek().at
        if self._take("not") or self._take("!"):
            with self.deeper():
                return self._node("operator", at, "(NOT ", self._negated(), ")", value="not")
        return self._predicate(self._value())

    def _predicate(self, value: Node) -> Node:
        negated, word = False, self._peek().word
        if word == "not":
            negated, word = True, self._peek(1).word
        if word not in ("between", "in", "rlike", "regexp", "like", "ilike", "is") or (negated and word == "is"):
            return value
        self._next()
        if negated:
            self._next()
        if word == "is":
            return self._is(value)
        node = self._node("operator", value.at, "(", *self._compared(word, value), ")", value=word)
        return self._not(node) if negated else node

    def _not(self, node: Node) -> Node:
        return self._node("operator", node.at, "(NOT ", node, ")", value="not")

    def _compared(self, word: str, value: Node) -> tuple[str | Node, ...]:
        if word == "between":
            low = self._value()
            self._expect("and", "BETWEEN is incomplete")
            return value, " BETWEEN ", low, " AND ", self._value()
        if word == "in":
            return value, " IN (", *join_nodes(self._bracketed("IN")), ")"
        if word in ("rlike", "regexp"):
            pattern = self._value()
            if problem := regex_problem(pattern):
                self._refuse_node(problem)
            return limit_for_patterns(value, [pattern.literal_text() or ""]), " RLIKE ", pattern
        return self._like(word.upper(), value)

    def _like(self, word: str, value: Node) -> tuple[str | Node, ...]:
        quantifier = self._peek().word
        if quantifier in ("any", "some", "all"):
            self._next()
            patterns = self._bracketed(f"{word} {quantifier.upper()}")
            texts = [self._like_text(pattern) for pattern in patterns]
            return limit_for_like(value, texts), f" {word} {quantifier.upper()} (", *join_nodes(patterns), ")"
        pattern = self._value()
        value = limit_for_like(value, [self._like_text(pattern)])
        if not self._take("escape"):
            return value, f" {word} ", pattern
        token = self._next()
        if token.kind not in ("text", "raw") or len(token.value) != 1:
            self._refuse(token, "ESCAPE needs one character in quotes", "Write ESCAPE '/'")
        return value, f" {word} ", pattern, f" ESCAPE {quote(token.value)}"

    def _bracketed(self, word: str) -> list[Node]:
        bracket = self._peek()
        self._expect("(", f"{word} needs a list in parentheses")
        return self._list(bracket)

    def _like_text(self, pattern: Node) -> str:
        text = pattern.literal_text()
        if text is None or not like_limit(text):
            remedy = "Write such a pattern, or use contains, startswith or endswith"
            problem = (
                f"a LIKE pattern must be a quoted string with at most {_MAX_WILDCARDS} % wildcards, "
                "not counting one at its end"
            )
            self._refuse_node((pattern, problem, remedy))
        return text

    def _is(self, value: Node) -> Node:
        negated = self._take("not")
        token = self._next()
        words = "IS NOT" if negated else "IS"
        if token.word in ("null", "true", "false", "unknown"):
            return self._node("operator", value.at, "(", value, f" {words} {token.word.upper()})", value="is")
        if token.word == "distinct" and self._take("from"):
            same = self._node("operator", value.at, "(", value, " <=> ", self._value(), ")", value="<=>")
            return same if negated else self._not(same)
        return self._refuse(token, f"{words} needs NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM", "Write one of them")

    def _value(self, level: int = 0) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        first = self._value(level + 1)
        parts: list[str | Node] = [first]
        operators: list[str] = []
        while (operator := self._peek().word or self._peek().text) in _LEVELS[level] and self._peek().kind != "text":
            self._next()
            self._count_operator()
            operators.append(operator)
            parts += [f" {operator.upper()} ", self._value(level + 1)]
        if not operators:
            return first
        return self._node("operator", first.at, "(", *parts, ")", value=operators[0])

    def _unary(self) -> Node:
        token = self._peek()
        if token.kind == "symbol" and token.text in ("-", "+", "~"):
            self._next()
            with self.deeper():
                return self._node("unary", token.at, f"({token.text}", self._unary(), ")", value=token.text)
        return self._postfixed(self.atom())

    def _postfixed(self, node: Node) -> Node:
        behind = 0
        while self._peek().kind == "symbol" and self._peek().text in _BEHIND:
            token = self._peek()
            behind += 1
            if behind > MAXIMUM_DEPTH:
                self._refuse(token, f"more than {MAXIMUM_DEPTH} members and casts follow one another", "Simplify it")
            if token.text != "::" and node.kind in _LITERALS:
                return node
            if token.text == ":":
                node = self._path(node)
            elif self._takes_cast():
                node = self._cast_node(node, "CAST", token.at)
            elif token.text == "[":
                self._next()
                with self.deeper():
                    index = self._value()
                self._close(token)
                node = self._node("index", node.at, node, "[", index, "]")
            else:
                node = self._member(node)
        return node

    def _takes_cast(self) -> bool:
        return self._peek().text == "::" and bool(self._next())

    def _cast_node(self, value: Node, word: str, at: int) -> Node:
        reader = TypeReader(self._text, self._tokens, self._at)
        named = reader.read()
        self._at = reader.at
        if "DECIMAL" in named:
            value = limit_decimal(value)
        return self._node("cast", at, f"{word}(", value, f" AS {named})", value=named)

    def _member(self, node: Node) -> Node:
        dot, name = self._next(), self._next()
        if node.kind == "column" and node.value != "extensions":
            remedy = f"Write data:{name.text} for a member of the data" if node.value == "data" else "Remove the member"
            self._refuse(dot, f"{node.value} has no members, so it cannot be followed by a dot", remedy)
        field = name.value if name.kind == "name" else name.text
        if name.kind not in ("word", "name") or not _FIELD.fullmatch(field):
            self._refuse(name, "a name is missing after the dot", "Write a name, or ['name'] of a map")
        if self._peek().text == "(":
            self._refuse(name, "a function's name cannot follow a dot", "Write the function's name alone")
        return self._node("member", node.at, node, f".`{field}`", value=field)

    def _path(self, node: Node) -> Node:
        colon = self._next()
        if node.kind == "column" and node.value != "data":
            remedy = (
                "Write extensions.name" if node.value == "extensions" else "Write data:name for a member of the data"
            )
            self._refuse(colon, f"{node.value} is not JSON, so it cannot be followed by a colon", remedy)
        path = "$" + self._step(first=True)
        while self._peek().text in (".", "["):
            path += self._step(first=False)
        if self._peek().text == "(":
            self._refuse(self._peek(), "a member cannot be called", "Write a function's name before its arguments")
        return self._node("path", node.at, "variant_get(", node, f", {quote(path)}, 'variant')", value=path)

    def _step(self, *, first: bool) -> str:
        bracket = self._peek()
        if self._take("["):
            token = self._next()
            self._close(bracket)
            if token.kind == "number" and token.text.isdecimal() and len(token.text) < 10:
                return f"[{token.text}]"
            if token.kind not in ("text", "raw"):
                self._refuse(token, "a JSON member in [] must be a number or a quoted string", "Write [0] or ['name']")
            name = token.value
        else:
            if not first:
                self._expect(".", "the path is incomplete")
            token = self._next()
            if token.kind not in ("word", "name"):
                self._refuse(token, "a name is missing in the path", "Write data:name, or data:['a name']")
            name = token.value or token.text
        quote = '"' if "'" in name else "'"
        if quote in name or not name:
            self._refuse(token, "a name in a path must not be empty or have both kinds of quotes", "Use another name")
        return f"[{quote}{name}{quote}]"

    def _refuse_node(self, problem: tuple[Node, str, str]) -> NoReturn:
        node, what, remedy = problem
        self._refuse_at(node.at, what, remedy)


def parse_sql(text: str) -> Node:
    """Return the tree of an expression. Raises SqlError with the position of anything that is not allowed."""
    if len(text) > MAXIMUM_CHARACTERS:
        problem = f"the expression has {len(text):,} characters; the maximum is {MAXIMUM_CHARACTERS:,}"
        raise SqlError(problem, "Shorten it")
    return Parser(text).whole()


def expression_problem(text: str) -> tuple[str, str] | None:
    """Return the error in an expression and the remedy, or None if no error is found without Spark."""
    try:
        parse_sql(text)
    except SqlError as error:
        return error.problem, error.remedy
    return None
