"""Parses the operands of an SQL expression: literals, columns, calls, lambdas, CASE and CAST."""

from __future__ import annotations

import re
from typing import Final, NoReturn

from eventbridge.similar_names import similar
from eventbridge.transform.sql.bounds import call_problem
from eventbridge.transform.sql.functions import FUNCTIONS, HIGHER_ORDER, INSTEAD, UNITS, WITH_UNIT, words
from eventbridge.transform.sql.lexer import Token, quote
from eventbridge.transform.sql.reader import MAXIMUM_LAMBDAS, Reader
from eventbridge.transform.sql.run_time_limits import limit_call
from eventbridge.transform.sql.searches import search_parts
from eventbridge.transform.sql.tree import Node, join_nodes

#: The columns that an expression can use: the attributes of CloudEvents as text, and the other parts of an event.
COLUMNS: Final = (
    "id",
    "source",
    "specversion",
    "type",
    "subject",
    "time",
    "datacontenttype",
    "dataschema",
    "extensions",
    "data",
    "data_base64",
)

_QUERY: Final = words("select from table values with map reduce insert create drop alter delete exists using")
_NAMES: Final = ("word", "name")
#: Names that begin with __ are reserved for the limits that `run_time_limits` and `searches` write.
_PARAMETER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
#: The maximum number of parameters of a lambda; no function takes more.
_MAX_PARAMETERS: Final = 3
_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz", "timestamp_ltz"})
_INTERVAL_UNITS: Final = frozenset({unit + end for unit in UNITS for end in ("", "s")} - {"dayofyear"})
_INTERVAL_TEXT: Final = re.compile(r"[-+0-9A-Za-z .:]{1,64}")


class Calls(Reader):
    """The part of the parser that parses operands."""

    def expression(self) -> Node:
        """Return the tree of an expression; `Parser` overrides this."""
        raise NotImplementedError

    def _cast_node(self, value: Node, word: str, at: int) -> Node:
        raise NotImplementedError

    def atom(self) -> Node:
        """Return the tree of an operand, without the members and casts that follow it."""
        token = self._peek()
        if token.kind == "word":
            return self._word(token)
        self._next()
        if token.kind in ("text", "raw"):
            return self._node("text", token.at, quote(token.value), value=token.value)
        if token.kind == "hex":
            return self._node("bytes", token.at, f"X'{token.value}'")
        if token.kind == "number":
            return self._number(token)
        if token.kind == "name":
            return self._column(token, token.value)
        if token.text == "(":
            inner = self.expression()
            self._close(token)
            return self._node("operator", token.at, "(", inner, ")", value="()") if inner.kind == "lambda" else inner
        self._at -= token.kind != "end"
        return self._unexpected()

    def _number(self, token: Token) -> Node:
        digits = re.fullmatch(r"(\d+)[lLsSyY]?", token.text)
        whole = int(digits[1]) if digits and len(digits[1]) <= 19 else None
        return self._node("number", token.at, token.text.upper(), value=whole)

    def _word(self, token: Token) -> Node:
        name, after = token.word, self._peek(1)
        if name in ("true", "false", "null"):
            self._next()
            return self._node("constant", token.at, name.upper(), value=name)
        if name == "case":
            return self._case()
        if name == "interval" and after.kind in ("text", "raw", "number", "symbol") and after.text != "(":
            return self._interval()
        if name in _TIMES and after.kind in ("text", "raw"):
            self._next()
            return self._node("time", token.at, f"{name.upper()} {quote(self._next().value)}")
        if after.text != "(":
            self._next()
            return self._column(token, token.text)
        if name in ("cast", "try_cast"):
            return self._cast(name)
        return self._extract() if name == "extract" else self._call(name)

    def _column(self, token: Token, written: str) -> Node:
        name = written.lower()
        if self._peek().text == "(":
            self._refuse(token, "the name of a function must not be quoted", "Remove the quotes")
        if name in self._parameters:
            return self._node("parameter", token.at, f"`{name}`", value=name)
        if name in COLUMNS:
            return self._node("column", token.at, f"`{name}`", value=name)
        return self._no_column(token, written)

    def _no_column(self, token: Token, written: str) -> NoReturn:
        name = written.lower()
        if token.kind == "word" and name in _QUERY:
            remedy = "Remove it: an expression can read only its own event, and no table, query or program"
            self._refuse(token, f"{written.upper()} begins a query or a statement", remedy)
        if name in FUNCTIONS:
            self._refuse(token, f"{written} is a function", f"Write {written}(...)")
        near = similar(name, [*COLUMNS, *self._parameters], cutoff=0.75)
        if near:
            meant = f"Did you mean {near[0]}?"
        elif re.fullmatch(r"\w+", written):
            meant = f"Write data:{written} for a member of the data, extensions.{written} for an extension"
        else:
            meant = "Write data:['name'] for a member of the data, and a text in single quotes"
        self._refuse(token, f"there is no column {written!r}; the columns are {', '.join(COLUMNS)}", meant)

    def _call(self, name: str) -> Node:
        token, bracket = self._next(), self._next()
        if name not in FUNCTIONS:
            near = similar(name, FUNCTIONS, cutoff=0.8)
            listed = "Use one of the functions that docs/reference/transforms.md lists"
            found = f"Did you mean {near[0]}?" if near else listed
            self._refuse(token, f"{token.text} is not a function that an expression can call", INSTEAD.get(name, found))
        unit = self._unit() if name in WITH_UNIT and self._peek(1).text == "," else ""
        arguments = [] if self._take(")") else self._arguments(name, bracket)
        least, most = FUNCTIONS[name]
        if not least <= len(arguments) + bool(unit) <= (len(arguments) + 1 if most is None else most):
            takes = f"{least}" if most == least else f"{least} or more" if most is None else f"{least} to {most}"
            given = len(arguments) + bool(unit)
            self._refuse(
                token,
                f"{token.text} takes {takes} argument{'' if takes == '1' else 's'}, but this call has {given}",
                f"Pass {takes}",
            )
        if problem := call_problem(name, arguments):
            self._refuse_at(problem[0].at, problem[1], problem[2])
        parts = search_parts(name, arguments)
        if parts is None:
            begin = f"{name}({unit}, " if unit else f"{name}("
            parts = (begin, *join_nodes(limit_call(name, arguments, inside=self._lambdas > 0)), ")")
        call = self._node("call", token.at, *parts, value=name)
        if self._peek().word in ("over", "filter", "within", "respect", "ignore"):
            looks = f"{self._peek().text.upper()} reads other events"
            self._refuse(self._peek(), looks, "Remove it: an expression can read only its own event")
        return call

    def _unit(self) -> str:
        token = self._peek()
        if token.word not in UNITS:
            return ""
        self._next()
        self._next()
        return token.word.upper()

    def _arguments(self, name: str, bracket: Token) -> list[Node]:
        found: list[Node] = []
        while True:
            node = self._lambda() if name in HIGHER_ORDER and self._is_at_lambda() else self.expression()
            if name == "struct" and self._take("as"):
                field = self._next()
                if not _PARAMETER.fullmatch(field.value or field.text):
                    self._refuse(field, "AS needs a name", "Write AS name, of letters, digits and _")
                node = self._node("named", node.at, node, f" AS `{field.value or field.text}`")
            found.append(node)
            if not self._take(","):
                self._close(bracket)
                return found

    def _is_at_lambda(self) -> bool:
        if self._peek().text != "(":
            return self._peek().kind in _NAMES and self._peek(1).text == "->"
        ahead = 1
        while self._peek(ahead).kind in _NAMES and self._peek(ahead + 1).text == ",":
            ahead += 2
        return self._peek(ahead).kind in _NAMES and [self._peek(ahead + n).text for n in (1, 2)] == [")", "->"]

    def _lambda(self) -> Node:
        at = self._peek().at
        several = self._take("(")
        names: list[str] = []
        while not self._take("->"):
            token = self._next()
            if token.kind in _NAMES:
                name = (token.value or token.text).lower()
                if not _PARAMETER.fullmatch(name) or name in COLUMNS or name in names or name.startswith("__"):
                    remedy = "Use another name of letters, digits and _, which no column has"
                    self._refuse(token, f"{token.text} cannot be the name of a lambda's parameter", remedy)
                names.append(name)
                if len(names) > _MAX_PARAMETERS:
                    self._refuse(token, f"a lambda has more than {_MAX_PARAMETERS} parameters", "Name fewer")
        self._lambdas += 1
        if self._lambdas > MAXIMUM_LAMBDAS:
            self._refuse_at(at, f"more than {MAXIMUM_LAMBDAS} lambdas are nested", "Nest fewer")
        outer, self._parameters = self._parameters, self._parameters | set(names)
        body = self.expression()
        self._parameters = outer
        self._lambdas -= 1
        listed = ", ".join(f"`{name}`" for name in names)
        return self._node("lambda", at, f"({listed}) -> " if several else f"{listed} -> ", body, value=" ".join(names))

    def _list(self, bracket: Token) -> list[Node]:
        found = [self.expression()]
        while self._take(","):
            found.append(self.expression())
        self._close(bracket)
        return found

    def _case(self) -> Node:
        case = self._next()
        parts: list[str | Node] = ["CASE"]
        if self._peek().word != "when":
            parts += [" ", self.expression()]
        while self._take("when"):
            parts += [" WHEN ", self.expression()]
            self._expect("then", "WHEN needs THEN")
            parts += [" THEN ", self.expression()]
        if " WHEN " not in parts:
            self._refuse(case, "CASE needs WHEN", "Write CASE WHEN condition THEN value ELSE value END")
        if self._take("else"):
            parts += [" ELSE ", self.expression()]
        self._expect("end", "CASE needs END")
        return self._node("case", case.at, *parts, " END")

    def _cast(self, name: str) -> Node:
        token, bracket = self._next(), self._next()
        value = self.expression()
        self._expect("as", f"{token.text} needs AS and a type")
        node = self._cast_node(value, name.upper(), token.at)
        self._close(bracket)
        return node

    def _extract(self) -> Node:
        token, bracket = self._next(), self._next()
        field = self._next()
        if field.word.removesuffix("s") not in UNITS and field.word not in ("dow", "dayofweek", "doy"):
            self._refuse(field, "extract needs a field of a time", "Write extract(HOUR FROM time::timestamp)")
        self._expect("from", "extract needs FROM")
        value = self.expression()
        self._close(bracket)
        return self._node("call", token.at, f"date_part('{field.word}', ", value, ")", value="date_part")

    def _interval(self) -> Node:
        at = self._next().at
        written = ""
        while self._peek().kind in ("text", "raw", "number") or (written == "" and self._peek().text == "-"):
            sign = "-" if self._take("-") else ""
            token = self._next()
            if token.kind != "number" and not _INTERVAL_TEXT.fullmatch(token.value):
                self._refuse(token, "this is not an interval", "Write INTERVAL '1' DAY")
            written += f" {sign}{token.text if token.kind == 'number' else quote(token.value)}"
            for word in ("", "to"):
                if word and not self._take(word):
                    break
                if self._peek().word in _INTERVAL_UNITS:
                    written += f" {word.upper()} " if word else " "
                    written += self._next().word.upper()
        if not written:
            self._unexpected()
        return self._node("interval", at, f"(INTERVAL{written})")
