"""Splits an SQL expression into tokens of an explicit list; any other character is an error with its position."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NoReturn


class SqlError(Exception):
    """An expression is rejected; `problem` gives the position, and `remedy` says what to write instead."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}. {remedy}")
        self.problem = problem
        self.remedy = remedy


def line_and_column(text: str, position: int) -> str:
    """Return a position in a string as `line 1, column 5`."""
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {position - text.rfind(chr(10), 0, position)}"


_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<comment>--[^\r\n]*|/\*(?:(?!/\*|\*/).)*\*/)
    |(?P<raw>[rR](?:'[^']*'|"[^"]*"))
    |(?P<hex>[xX]'(?:[0-9a-fA-F]{2})*')
    |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<name>`[^`]+`)
    |(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?(?:[bB][dD]|[lLsSyYdDfF])?(?![\w.]))
    |(?P<word>[^\W\d]\w*)
    |(?P<symbol><=>|->|::|\|\||<=|>=|<>|!=|==|[-=<>+*%~&|^()\[\],.:!]|/(?!\*))""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPED: Final = {
    "\\": "\\",
    "'": "'",
    '"': '"',
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "b": "\b",
    "Z": "\x1a",
    "%": "\\%",  # Spark keeps the backslash of \% and \_, for LIKE
    "_": "\\_",
}


@dataclass(frozen=True, slots=True)
class Token:
    """A token: `text` is as written, `value` is the content of a quoted name or string, and `at` is the position."""

    kind: str
    text: str
    at: int
    value: str = ""

    @property
    def word(self) -> str:
        """Return the word in lower case, or an empty string if the token is not a word."""
        return self.text.lower() if self.kind == "word" else ""


def tokens(text: str) -> list[Token]:
    """Return the tokens of an expression, followed by one of the kind `end`. Raises SqlError."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            _refuse(text, at)
        kind, written = str(match.lastgroup), match[0]
        if kind in ("text", "raw", "hex") and text[match.end() : match.end() + 1] in ("'", '"'):
            raise SqlError(
                f"two texts in quotes are side by side, {line_and_column(text, match.end())}",
                r"Join texts with ||, and write a quote inside a text as \'",
            )
        if kind not in ("space", "comment"):
            found.append(Token(kind, written, at, _value(text, kind, written, at)))
        at = match.end()
    return [*found, Token("end", "", len(text))]


def quote(value: str) -> str:
    """Return a literal that Spark reads as the given string.

    All characters except ASCII letters, digits and a few signs are escaped as UTF-16 units, so that the literal cannot
    contain a quote, a comment, or a `${name}` that Spark would substitute.
    """
    return "'" + "".join(_escape_character(each) for each in value) + "'"


def _escape_character(character: str) -> str:
    if character.isascii() and (character.isalnum() or character in " ._,:+="):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _value(text: str, kind: str, written: str, at: int) -> str:
    if kind == "name":
        return written[1:-1]
    if kind in ("raw", "hex"):
        return written[2:-1]
    if kind != "text":
        return ""
    value = _ESCAPE.sub(lambda escape: _unescaped(text, escape, at + 1), written[1:-1])
    if any("\ud800" <= each <= "\udfff" for each in value):
        try:
            value = value.encode("utf-16", "surrogatepass").decode("utf-16")  # two escapes may form one character
        except UnicodeDecodeError:
            raise SqlError(
                f"the text contains half of a surrogate pair, {line_and_column(text, at)}",
                "Write both halves, or the character itself",
            ) from None
    return value


def _unescaped(text: str, escape: re.Match[str], start: int) -> str:
    named = escape[1]
    if len(named) > 1:
        number = int(named[1:], 16)
        if number <= 0x10FFFF:
            return chr(number)
    elif named in _ESCAPED:
        return _ESCAPED[named]
    raise SqlError(
        f"{escape[0]} is not a valid escape in a text, {line_and_column(text, start + escape.start())}",
        r"Write \\ for a backslash, or begin the text with r, such as r'\d+'",
    )


def _refuse(text: str, at: int) -> NoReturn:
    where, character = line_and_column(text, at), text[at]
    if text.startswith("/*", at):
        end, inner = text.find("*/", at), text.find("/*", at + 2)
        if end < 0:
            raise SqlError(f"the expression does not close the comment, {where}", "Close it")
        raise SqlError(f"a comment is inside a comment, {line_and_column(text, inner)}", "Remove one of them")
    if character in "'\"`":
        raise SqlError(f"the expression does not close the quote, {where}", "Close it")
    if character == ";":
        raise SqlError(f"the expression contains a ;, {where}", "Write one expression, not a statement")
    if character.isdigit() or character == ".":
        raise SqlError(f"this is not a number, {where}", "Write 12, 1.5, 1e3, or a whole number with L")
    shown = character if character.isprintable() else f"the character U+{ord(character):04X}"
    raise SqlError(f"{shown} has no meaning in an expression, {where}", "Remove it, or put text in quotes")
