"""Parses the types of casts, from tokens or from a string such as 'array<int>'."""

from __future__ import annotations

from typing import Final, NoReturn

from eventbridge.transform.sql.functions import words
from eventbridge.transform.sql.lexer import SqlError, Token, line_and_column, tokens

_SIMPLE: Final = words(
    """
    bigint binary boolean byte date double float int integer long real short smallint string timestamp timestamp_ltz
    timestamp_ntz tinyint variant
    """
)
_DECIMAL: Final = frozenset({"dec", "decimal", "numeric"})
_DEEPEST: Final = 8

#: The types whose values may have any size, and the types whose values have a fixed size.
OF_TEXT: Final = frozenset({"binary", "string", "variant"})
OF_FIXED_SIZE: Final = (_SIMPLE | _DECIMAL) - OF_TEXT


class TypeReader:
    """The parser of one type; `at` is the index of the next token."""

    def __init__(self, text: str, found: list[Token], at: int = 0) -> None:
        self._text = text
        self._tokens = found
        self.at = at

    def read(self, depth: int = 0) -> str:
        """Return the type as Spark writes it, and step past it. Raises SqlError."""
        token = self._next()
        name = token.word
        if depth > _DEEPEST:
            self._refuse(token, "the type is nested too deep", f"Nest at most {_DEEPEST} types")
        if name in _DECIMAL:
            return "DECIMAL" + self._precision()
        if name in _SIMPLE:
            return name.upper()
        if name == "array":
            return f"ARRAY<{self._inner(depth)}>"
        if name == "map":
            self._expect("<")
            key = self.read(depth + 1)
            self._expect(",")
            value = self.read(depth + 1)
            self._expect(">")
            return f"MAP<{key}, {value}>"
        remedy = "Use string, int, bigint, double, decimal(p, s), boolean, date, timestamp, or array<type>"
        shown = f"{token.text} is not a type that a cast can name" if token.text else "a type is missing"
        return self._refuse(token, shown, remedy)

    def _inner(self, depth: int) -> str:
        self._expect("<")
        inner = self.read(depth + 1)
        self._expect(">")
        return inner

    def _precision(self) -> str:
        if self._tokens[self.at].text != "(":
            return ""
        self.at += 1
        numbers = [self._digits()]
        if self._tokens[self.at].text == ",":
            self.at += 1
            numbers.append(self._digits())
        self._expect(")")
        return f"({', '.join(numbers)})"

    def _digits(self) -> str:
        token = self._next()
        if token.kind != "number" or not token.text.isdecimal() or int(token.text) > 38:
            self._refuse(token, "a decimal can have at most 38 digits", "Write decimal(38, 10), for example")
        return token.text

    def _expect(self, symbol: str) -> None:
        token = self._next()
        if token.text != symbol:
            self._refuse(token, f"{symbol} is missing in the type", f"Write {symbol}")

    def _next(self) -> Token:
        token = self._tokens[self.at]
        self.at += token.kind != "end"
        return token

    def _refuse(self, token: Token, problem: str, remedy: str) -> NoReturn:
        raise SqlError(f"{problem}, {line_and_column(self._text, token.at)}", remedy)


def is_type(text: str) -> bool:
    """Return whether a string is one type that a cast can use, and nothing else."""
    try:
        reader = TypeReader(text, tokens(text))
        reader.read()
    except SqlError:
        return False
    return reader.at == len(tokens(text)) - 1
