"""Parses templates: literal text with placeholders `${name}` and `${name:-default}`, and the escape `$${`."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal, NoReturn

from eventbridge.errors import TransformError
from eventbridge.event.json_document import json_fault, write_document
from eventbridge.transform.error import NAME

#: The context of a placeholder: in place of a JSON value, inside a JSON string, or in text that is not JSON.
PlaceholderContext = Literal["value", "string", "text"]

# A JSON quote, an escaped quote or backslash, or the beginning of a placeholder or of its escape.
_MARK = re.compile(r'\$\$\{|\$\{|\\["\\]|"')
_PLACEHOLDER = re.compile(r'\$\{([^{}"\\]*?)(?::-((?:[^}\\]|\\.)*))?\}', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
# Text that can only be meant as JSON: an object that begins with a quoted name, or a list of such an object.
_MEANT_AS_JSON = re.compile(r'\s*(\{\s*".*\}|\[\s*\{\s*".*\])\s*', re.DOTALL)

# A placeholder of another template language, in place of a JSON value.
_FOREIGN = re.compile(r"(?<=[:,\[])\s*(?:<(\w[\w.-]*)>|\{\{\s*(\w[\w.-]*)\s*\}\})")


#: The maximum number of invalid placeholders that are reported for one template.
_MAX_UNREADABLE = 20


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A placeholder `${name}`, with its default as written to the output (None if it has none) and its position."""

    name: str
    context: PlaceholderContext
    default: str | None
    at: str


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template: literals and placeholders in order; if `is_json`, the output is JSON for any values."""

    parts: tuple[str | Placeholder, ...]
    is_json: bool

    def placeholders(self) -> list[Placeholder]:
        """Return the placeholders in order."""
        return [part for part in self.parts if isinstance(part, Placeholder)]


@dataclass(frozen=True, slots=True)
class _RawPlaceholder:
    """A placeholder that is read before it is known whether the template is JSON."""

    name: str
    default: str | None
    in_string: bool
    at: str
    length: int

    @property
    def probe(self) -> str:
        """The text of the same length that replaces the placeholder while the template is parsed as JSON."""
        return _braces(self.default or "").ljust(self.length, "x") if self.in_string else "null".ljust(self.length)


def parse_template(text: str, where: str = "$") -> tuple[Template, list[TransformError]]:
    """Return the parsed template and its errors, which have `where` as their path.

    The template is JSON if its text, with placeholders in place of values or inside strings, is JSON.
    """
    raw, errors = _scan(text, where)
    # Escapes keep their length, so that the decoder's line and column are also those of the template.
    problem = _json_problem("".join(part.replace("${", "$${") if isinstance(part, str) else part.probe for part in raw))
    if problem and not errors and _MEANT_AS_JSON.fullmatch(text):
        remedy = "Correct it; if it is text that only looks like JSON, begin it with something else."
        if foreign := _FOREIGN.search(text):
            right = f"${{{foreign[1] or foreign[2]}}}"
            remedy = f"Write {right} for a value that is inserted, not {foreign[0].strip()}. {remedy}"
        errors.append(TransformError(f"the template is not JSON: {problem}", path=where, value=text, remedy=remedy))
    if lone := _SURROGATE.search(text):
        message = f"the template contains half of a surrogate pair at {line_and_column(text, lone.start())}"
        errors.append(TransformError(message, path=where, value=text, remedy="Write the whole character."))
    parts = tuple(part if isinstance(part, str) else _resolve_context(part, is_json=not problem) for part in raw)
    return Template(parts, is_json=not problem), errors


def _scan(text: str, where: str) -> tuple[list[str | _RawPlaceholder], list[TransformError]]:
    parts: list[str | _RawPlaceholder] = []
    errors: list[TransformError] = []
    lines = [0, *(each.end() for each in re.finditer("\n", text))]
    begin, position, in_string = 0, 0, False
    while mark := _MARK.search(text, position):
        position = mark.end()
        if mark[0] == '"':
            in_string = not in_string
        elif mark[0] == "$${":
            parts.append(text[begin : mark.start()] + "${")
            begin = position
        elif mark[0] == "${":
            found = _PLACEHOLDER.match(text, mark.start())
            if found is None or not NAME.fullmatch(found[1]):
                if len(errors) < _MAX_UNREADABLE:
                    errors.append(_unreadable(text, mark.start(), found, where))
                continue
            parts.append(text[begin : mark.start()])
            parts.append(
                _RawPlaceholder(
                    found[1], found[2], in_string, _line_and_column_among(lines, mark.start()), len(found[0])
                )
            )
            begin = position = found.end()
    parts.append(text[begin:])
    return [part for part in parts if part != ""], errors


def _unreadable(text: str, position: int, found: re.Match[str] | None, where: str) -> TransformError:
    at = line_and_column(text, position)
    if found is not None and not found[1]:
        message, remedy = f"the placeholder at {at} has no name", "Write ${name}"
    elif found is not None:
        message = f"the placeholder at {at} has the invalid name {found[1]!r}"
        remedy = "Write ${name} with letters, digits and _ . - only; a path belongs under value"
    elif "}" not in text[position:]:
        message, remedy = f"the placeholder at {at} is not closed", "Write ${name}"
    else:
        message, remedy = f"the placeholder at {at} cannot be read", "Write ${name} or ${name:-default}"
    return TransformError(message, path=where, value=text, remedy=f"{remedy}; for the text ${{ itself write $${{.")


def _resolve_context(raw: _RawPlaceholder, *, is_json: bool) -> Placeholder:
    context: PlaceholderContext = "text" if not is_json else "string" if raw.in_string else "value"
    default = raw.default
    if default is not None and context == "string":
        default = _braces(default)  # already valid inside a JSON string, as the probe has shown
    elif default is not None and context == "text":
        default = _unescaped(default)
    elif default is not None:
        default = _braces(default) if not _json_problem(_braces(default)) else write_document(_unescaped(default))
    return Placeholder(raw.name, context, default, raw.at)


def _braces(default: str) -> str:
    """Return a default with `\\}` replaced by `}`; other escapes are JSON's and stay."""
    return re.sub(r"\\(.)", lambda pair: "}" if pair[1] == "}" else pair[0], default, flags=re.DOTALL)


def _unescaped(default: str) -> str:
    """Return a default with `\\}` replaced by `}`, and `\\\\` by a backslash."""
    return re.sub(r"\\([}\\])", r"\1", default)


def _json_problem(text: str) -> str | None:
    """Return why a string is not JSON, with line and column if known; None if it is JSON."""
    try:
        _DECODER.decode(text)
    except json.JSONDecodeError as error:
        message, at = json_fault(error)
        return f"{message}, {line_and_column(text, at)}"
    except _NotJson as error:
        return f"{error} is not a JSON value"
    except RecursionError:
        return "it is nested too deep"
    return None


class _NotJson(Exception):
    """The text contains a word, such as NaN, that Python's decoder accepts although it is not JSON."""


def _no_constant(word: str) -> NoReturn:
    raise _NotJson(word)


# Numbers are checked but not converted, because Python limits the digits that it converts.
_DECODER = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=_no_constant)


def _line_and_column_among(lines: list[int], position: int) -> str:
    """Return what `line_and_column` returns, but quickly for many placeholders; `lines` are the starts of lines."""
    line = bisect_right(lines, position)
    return f"line {line}, column {position - lines[line - 1] + 1}"


def line_and_column(text: str, position: int) -> str:
    """Return the position of a character in a string as `line 1, column 5`."""
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {position - text.rfind(chr(10), 0, position)}"
