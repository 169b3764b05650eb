"""Parses templates: literal text with placeholders `${name}` and `${name:-default}`, and the escape `$${`."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NoReturn
from urllib.parse import quote_plus
from xml.parsers import expat

from eventbridge.errors import TransformError, TransformFailed
from eventbridge.event.json_document import json_fault, write_document
from eventbridge.transform.error import NAME

#: The context of a placeholder: in place of a JSON value, inside a JSON string, in the text or an attribute of XML, in
#: a field of a form, or in other text.
PlaceholderContext = Literal["value", "string", "xml", "form", "text"]

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
    """A parsed template: literals and placeholders in order; if `is_json`, the output is JSON for any values.

    `content_type` is that of the output, empty if its definition names none.
    """

    parts: tuple[str | Placeholder, ...]
    is_json: bool
    content_type: str = ""

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


def parse_template(
    text: str, where: str = "$", content_type: str | None = None
) -> tuple[Template, list[TransformError]]:
    """Return the parsed template and its errors, which have `where` as their path.

    `content_type`, a valid one, decides how values are inserted. Without one the template is JSON if its text, with
    placeholders in place of values or inside strings, is JSON.
    """
    raw, errors = _scan(text, where)
    kind = escaping_of(content_type) if content_type else None
    # Escapes keep their length, so that the decoder's line and column are also those of the template.
    problem = _json_problem("".join(part.replace("${", "$${") if isinstance(part, str) else part.probe for part in raw))
    if problem and not errors and (kind == "json" or (kind is None and _MEANT_AS_JSON.fullmatch(text))):
        remedy = "Correct it; if it is text that only looks like JSON, begin it with something else."
        if kind == "json":
            remedy = f"Correct it, or write another content_type than {content_type}."
        if foreign := _FOREIGN.search(text):
            right = f"${{{foreign[1] or foreign[2]}}}"
            remedy = f"Write {right} for a value that is inserted, not {foreign[0].strip()}. {remedy}"
        errors.append(TransformError(f"the template is not JSON: {problem}", path=where, value=text, remedy=remedy))
    if lone := _SURROGATE.search(text):
        message = f"the template contains half of a surrogate pair at {line_and_column(text, lone.start())}"
        errors.append(TransformError(message, path=where, value=text, remedy="Write the whole character."))
    elif kind == "xml" and not errors and (fault := _xml_problem(raw)):
        remedy = f"Correct it, or write another content_type than {content_type}."
        errors.append(TransformError(f"the template is not XML: {fault}", path=where, value=text, remedy=remedy))
    kind = kind or ("text" if problem else "json")
    if kind in ("xml", "html") and (default := next(filter(None, map(_illegal_default, raw)), None)):
        errors.append(TransformError(default, path=where, value=text, remedy="Remove it."))
    shown: Escaping = kind if kind == "json" or not errors else "text"  # a template with errors is never rendered
    parts = tuple(part if isinstance(part, str) else _resolve_context(part, shown) for part in raw)
    return Template(parts, is_json=kind == "json", content_type=content_type or ""), errors


#: The ways in which values are inserted into a template: escaped as JSON, as XML or HTML, as a form, or not at all.
Escaping = Literal["json", "xml", "html", "form", "text"]

_TOKEN = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"
_PARAMETER = r"[A-Za-z0-9_-]{1,40}=(?:[A-Za-z0-9_.:+/-]{1,100}|\"[A-Za-z0-9_.:+/ -]{1,100}\")"
_MEDIA_TYPE = re.compile(f"({_TOKEN}/{_TOKEN})(?: ?; ?{_PARAMETER}){{0,5}}", re.ASCII)
_CHARSET = re.compile(r";\s*charset=\"?([^\";]*)", re.IGNORECASE)


def content_type_problem(text: str) -> tuple[str, str] | None:
    """Return the error in a template's content type and its remedy, or None if it is valid."""
    found = _MEDIA_TYPE.fullmatch(text)
    if found is None:
        return "this is not a content type", "Write one such as application/xml or text/csv; header=absent"
    if found[1].lower().startswith("multipart/"):
        return "a template has one part, and multipart types have several", "Write the type of the content itself"
    charset = next((each for each in _CHARSET.findall(text) if each.lower() != "utf-8"), None)
    if charset is not None:
        return f"the output is UTF-8, not {charset}", "Write charset=utf-8, or remove it"
    return None


def escaping_of(content_type: str) -> Escaping:
    """Return how values are inserted into a template with a content type."""
    media_type = content_type.partition(";")[0].strip().lower()
    subtype = media_type.partition("/")[2]
    if subtype == "json" or subtype.endswith("+json"):
        return "json"
    if subtype == "xml" or subtype.startswith("xml-") or subtype.endswith("+xml"):
        return "xml"
    if media_type == "application/x-www-form-urlencoded":
        return "form"
    return "html" if media_type == "text/html" else "text"


def _illegal_default(part: str | _RawPlaceholder) -> str | None:
    illegal = None if isinstance(part, str) else _NOT_IN_XML.search(part.default or "")
    return illegal and f"a default contains U+{ord(illegal[0]):04X}, which XML and HTML cannot contain"


def _xml_problem(raw: list[str | _RawPlaceholder]) -> str | None:
    """Return why a template is not well-formed XML, or None if it is, with any values in its placeholders.

    A placeholder may be only where escaping is enough: in text and in the values of attributes.
    """
    # Stands for a placeholder; a character for private use is no part of a name in XML. None that the text refers to
    # (&#xE000;), because the parser replaces references.
    written = "".join(part for part in raw if isinstance(part, str))
    taken = {*map(ord, written), *(int(*digits) for digits in _references(written))}
    mark = next((chr(each) for each in range(0xE000, 0xF8FF) if each not in taken), "")
    text = "".join(part if isinstance(part, str) else mark for part in raw)
    seen = _XmlContent()
    parser = expat.ParserCreate(encoding="utf-8")
    parser.StartElementHandler = lambda _, attributes: seen.add("".join(attributes.values()))
    parser.CharacterDataHandler = seen.add
    parser.StartCdataSectionHandler = lambda: seen.switch(within_cdata=True)
    parser.EndCdataSectionHandler = lambda: seen.switch(within_cdata=False)
    parser.StartDoctypeDeclHandler = seen.refuse_doctype
    parser.XmlDeclHandler = lambda _version, encoding, _standalone: seen.check_encoding(encoding)
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        return f"{expat.ErrorString(error.code)}, line {error.lineno}"
    except _NotXml as error:
        return str(error)
    if sum(each.count(mark) for each in seen.texts) < sum(isinstance(part, _RawPlaceholder) for part in raw):
        return "a placeholder may be in text and in the value of an attribute, but not in a comment or CDATA section"
    return None


def _references(text: str) -> Iterator[tuple[str, int]]:
    """Yield the digits and the base of each reference to a character, leading zeros removed."""
    for base, digits in ((16, "x0*([0-9a-fA-F]{1,6})"), (10, "0*([0-9]{1,7})")):
        for found in re.finditer(f"&#{digits};", text):
            yield found[1], base


class _NotXml(Exception):
    """XML that a template must not contain."""


class _XmlContent:
    """Collects the text and the values of attributes of a document, except CDATA sections."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._within_cdata = False

    def add(self, text: str) -> None:
        """Add text."""
        if not self._within_cdata:
            self.texts.append(text)

    def switch(self, *, within_cdata: bool) -> None:
        """Note the beginning or the end of a CDATA section."""
        self._within_cdata = within_cdata

    def refuse_doctype(self, *_: object) -> None:
        """Refuse a document type, whose entities a receiver would expand or fetch."""
        raise _NotXml("it has a DOCTYPE, which many receivers refuse because its entities can be misused")

    def check_encoding(self, encoding: str | None) -> None:
        """Refuse an XML declaration with another encoding than that of the output."""
        if encoding is not None and encoding.lower() != "utf-8":
            raise _NotXml(f"its declaration says {encoding}, but the output is UTF-8")


def escape_xml(text: str) -> str:
    """Return text as it is written in the text or in an attribute of XML. Raises TransformFailed.

    Line breaks and tabs become references, because a parser would normalise them in attributes.
    """
    if illegal := _NOT_IN_XML.search(text):
        raise TransformFailed(f"a value contains U+{ord(illegal[0]):04X}, which XML and HTML cannot contain")
    return _TO_ESCAPE.sub(lambda found: f"&#{ord(found[0])};", text)


def escape_form(text: str) -> str:
    """Return text as it is written in a value of a form. Raises TransformFailed."""
    try:
        return quote_plus(text)
    except UnicodeEncodeError:
        raise TransformFailed("a value contains half of a surrogate pair, which a form cannot contain") from None


#: XML 1.0, 2.2, and the characters that end a text or an attribute or are normalised.
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_TO_ESCAPE = re.compile("[&<>\"'\t\n\r]")


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


def _resolve_context(raw: _RawPlaceholder, kind: Escaping) -> Placeholder:
    context: PlaceholderContext = "xml" if kind == "html" else "value" if kind == "json" else kind
    if context == "value" and raw.in_string:
        context = "string"
    default = raw.default
    if default is not None and context == "string":
        default = _braces(default)  # already valid inside a JSON string, as the probe has shown
    elif default is not None and context != "value":
        default = ESCAPES[context](_unescaped(default))
    elif default is not None:
        default = _braces(default) if not _json_problem(_braces(default)) else write_document(_unescaped(default))
    return Placeholder(raw.name, context, default, raw.at)


#: The escapes of text in each context that is not JSON.
ESCAPES: Final[dict[PlaceholderContext, Callable[[str], str]]] = {
    "xml": escape_xml,
    "form": escape_form,
    "text": str,
}


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
