"""Prints the output of commands: lines and tables for people, or with `-o json` or `-o yaml` one document.

Notes and warnings go to standard error. Tables fit the terminal; in a pipe or a file, only a very long cell is cut.
"""

from __future__ import annotations

import codecs
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TextIO

import typer

from eventbridge.cli.colour import STATE_NAMES, state_styled, styled
from eventbridge.errors import EventError, UserError
from eventbridge.event.json_document import parse_document, write_document
from eventbridge.event.json_text import bytes_as_text, plain
from eventbridge.plug_in_calls import is_in_plug_in

#: The formats of `-o`; `--json` is short for `-o json`.
FORMATS: Final = ("table", "json", "yaml")
_CHOSEN: Final = "eventbridge.format"
_format = FORMATS[0]


def keep_format(context: typer.Context, value: str | None) -> None:
    """Keep the value of `-o`, which is read before `--json`. Raises Typer's error for another format."""
    if value is not None and value not in FORMATS:
        raise typer.BadParameter(f"{value!r} is not a format. Formats: {', '.join(FORMATS)}", param_hint="-o")
    context.meta[_CHOSEN] = value


def _is_document(context: typer.Context, value: bool) -> bool:
    """Return whether the command prints a document, by `-o` and `--json`, and set the document's format."""
    global _format
    chosen = context.meta.get(_CHOSEN)
    if value and chosen not in (None, "json"):
        raise typer.BadParameter(f"--json means -o json. Leave --json or -o {chosen} out", param_hint="--json")
    _format = "json" if value else chosen or FORMATS[0]
    return _format != "table"


#: The parameter of each command that prints data. It is True for every document, whose format `-o` chooses; `Group`
#: adds the `-o` option to a command that has this one.
JsonOption = Annotated[bool, typer.Option("--json", help="Short for `-o json`.", callback=_is_document)]

#: The exit code after a closed pipe (128 + SIGPIPE); 1 would mean that a difference was found.
CLOSED_PIPE = 141

#: The maximum number of characters of a JSON object or list that is written on one line.
_JSON_LINE_WIDTH = 60


def print_line(line: str = "") -> None:
    """Print a line on standard output; ends the command quietly if the reader closed the pipe (`| head`)."""
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        end_output(sys.stdout)
        raise typer.Exit(CLOSED_PIPE) from None


class OutputWithoutPlugIns:
    """Standard output, except that what the code of plug-ins prints goes to standard error.

    A package that prints something when it is imported would spoil each document that `--json` promises.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text to the stream of this thread."""
        return (sys.stderr if is_in_plug_in() else self._stream).write(text)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of standard output."""
        return getattr(self._stream, name)


def end_output(*streams: TextIO) -> None:
    """Discard whatever is still written to these streams.

    Their readers are gone; flushing the buffers when the interpreter ends would fail once more, with a traceback.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())


def confirm(consequence: str, question: str) -> None:
    """State the consequence and ask for confirmation; the answer "no" ends the command with exit code 1.

    Raises a UserError that names --yes if standard input is not a terminal.
    """
    if not sys.stdin.isatty():
        raise UserError(f"{consequence} Standard input is not a terminal: pass --yes to confirm")
    typer.confirm(f"{consequence} {question}", abort=True)


def note(text: str) -> None:
    """Print a note for people on standard error, separate from the result."""
    sys.stderr.write(f"Note: {text}\n")


def warn(text: str) -> None:
    """Print a warning on standard error; the command continues, but perhaps not as intended."""
    sys.stderr.write(f"{styled('Warning:', sys.stderr, typer.colors.YELLOW)} {text}\n")


def show_document(value: Any) -> None:
    """Print a value as indented JSON or, with `-o yaml`, as YAML.

    Times are ISO 8601; bytes are a string or, if they are not UTF-8, base64.
    """
    document = plain(value)
    print_line("\n".join(_yaml_lines(document)) if _format == "yaml" else safe_json(json_text(document)))


def show_line_document(value: Any) -> None:
    """Print a value as one line of JSON or, with `-o yaml`, as a YAML document of its own."""
    document = plain(value)
    print_line(
        "\n".join(["---", *_yaml_lines(document)])
        if _format == "yaml"
        else safe_json(write_document(document), sys.stdout)
    )


def safe_json(text: str, stream: TextIO | None = None) -> str:
    """Return JSON text with escapes for what a terminal would act on, and for what the stream cannot encode.

    Without `stream`, it is standard output.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    is_utf8 = codecs.lookup((stream or sys.stdout).encoding or "utf-8").name == "utf-8"
    return _UNSAFE.sub(
        lambda found: found[0] if is_utf8 and not _is_control(found[0]) else _json_escape(found[0]), text
    )


_UNSAFE = re.compile("[^\x00-\x7e]")


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


#: A string that YAML reads as a string, and as nothing else, without quotes.
_PLAIN_YAML = re.compile(
    r"(?!(?:true|false|null|yes|no|on|off|y|n)$)[a-z][a-z0-9_-]*(?:[./][a-z0-9_-]+)*", re.IGNORECASE
)
#: Characters that JSON may contain as they are, but YAML only as escapes.
_NOT_IN_YAML = re.compile("[\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_EXPONENT = re.compile(r"(-?[0-9]+)(\.[0-9]+)?[eE]([+-]?)([0-9]+)")
#: YAML reads a key of more than 1,024 characters only after `? `.
_LONGEST_YAML_KEY = 1_000


def _yaml_lines(value: Any, margin: str = "") -> Iterator[str]:
    """Yield the lines of a YAML document; scalars are JSON, which YAML contains, or plain words."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            name = _yaml_scalar(key)
            head = f"{margin}{name}:" if len(name) <= _LONGEST_YAML_KEY else f"{margin}? {name}\n{margin}:"
            yield from _yaml_item(head, item, margin)
    elif isinstance(value, list | tuple) and value:
        for item in value:
            yield from _yaml_item(f"{margin}-", item, margin)
    else:
        yield margin + _yaml_scalar(value)


def _yaml_item(head: str, item: Any, margin: str) -> Iterator[str]:
    if not (isinstance(item, Mapping | list | tuple) and item):
        yield f"{head} {_yaml_scalar(item)}"
        return
    lines = _yaml_lines(item, margin + "  ")
    if head.endswith("-"):  # the first line of an item continues that of its dash
        yield f"{head} {next(lines)[len(margin) + 2 :]}"
    else:
        yield head
    yield from lines


def _yaml_scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN_YAML.fullmatch(value):
        return value
    text = write_document(value)
    if exponent := _EXPONENT.fullmatch(text):  # YAML 1.1 reads 1e3 as a string
        return f"{exponent[1]}{exponent[2] or '.0'}e{exponent[3] or '+'}{exponent[4]}"
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def json_text(value: Any, margin: str = "") -> str:
    """Return indented JSON with numbers exactly as they were written; a short object or list is one line."""
    inner = margin + "  "
    if isinstance(value, Mapping) and value:
        items = [f"{_json_line(key)}: {_json_within(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(inner + item for item in items) + f"\n{margin}}}"
    if isinstance(value, list | tuple) and value:
        return "[\n" + ",\n".join(inner + _json_within(item, inner) for item in value) + f"\n{margin}]"
    return write_document(value)


def _json_within(value: Any, margin: str) -> str:
    line = _json_line(value)
    return line if len(line) <= _JSON_LINE_WIDTH else json_text(value, margin)


def _json_line(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_json_line(key)}: {_json_line(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_json_line, value)) + "]"
    return write_document(value)


_GAP = "  "
#: The number of characters of an id that are shown if the terminal is narrow. Commands accept prefixes; in a batch id,
#: these characters contain the millisecond in which the batch was planned.
_SHORT_ID = 13
#: A UUID, with the suffix that follows it in the name of a dead letter.
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(@[0-9a-f]{8})?")
#: The maximum number of characters in a cell, because an event id of 100 KB would pad the column of every row. Every
#: valid name fits.
_MAX_CELL_LENGTH = 300
#: A column of strings is not made narrower than its longest word, but at most this many characters of the word count.
#: If the table still does not fit, each row becomes a block of lines.
_LONGEST_WORD = 24


def show_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, ids: Collection[str] = ()
) -> None:
    """Print rows under a title; columns of numbers are aligned to the right, and an empty table is one line.

    On a terminal that is too narrow, the UUIDs of the columns `ids` are shortened, then text is wrapped;
    if that is not enough, each row is printed as lines of `column value`. A cell of more than 300 characters is cut.
    """
    filled = [list(row) for row in rows]
    if not filled:
        print_line(f"{title}: none")
        return
    numeric = [all(_is_number(row[number]) for row in filled) for number in range(len(columns))]
    cells = [[truncate(cell_text(value)) for value in row] for row in filled]
    print_line("\n".join([title, *_layout(columns, cells, numeric, ids, _terminal_width())]))


def show_columns(columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    """Print rows of text without a title; the columns that are `numeric` are aligned to the right.

    The table fits the terminal as by `show_table`.
    """
    cells = [[truncate(visible(value)) for value in row] for row in rows] or [[""] * len(columns)]
    lines = list(_layout(list(map(visible, columns)), cells, list(numeric), (), _terminal_width()))
    print_line("\n".join(lines if rows else lines[:1]))


def show_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print named values, one per line; None values are left out, and numbers are aligned to the right."""
    filled = [(name, cell_text(value), _is_number(value)) for name, value in fields if value is not None]
    name_width = max((_width(name) for name, _, _ in filled), default=0)
    number_width = max((_width(value) for _, value, number in filled if number), default=0)
    for name, value, number in filled:
        shown = value.rjust(number_width) if number else _paint(name, value)
        print_line(f"{name.ljust(name_width)}{_GAP}{shown}")


def show_text(title: str, content: str) -> None:
    """Print a title and, under it, indented text of any number of lines."""
    print_line("\n".join([title, *(_GAP + visible(line) for line in content.split("\n"))]))


def readable(body: bytes) -> str:
    """Return a payload as indented JSON if it is JSON, else as text."""
    try:
        return json_text(parse_document(body))
    except EventError:
        return bytes_as_text(body)


def cell_text(value: object) -> str:
    """Return a value as one line; times in UTC to the second, control characters escaped.

    A float has one decimal, or two significant digits (0.013) if one decimal would show 0.0.
    """
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.2g}" if 0 < abs(value) < 0.05 else f"{value:,.1f}"
    return "" if value is None else visible(str(value))


def counts_text(counts: Mapping[str, int]) -> str:
    """Return counts as one text, by name, such as `2 delivered, 1 pending`."""
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))


def end_text(what: str, name: str, state: str, taken: str, outcomes: Mapping[str, int]) -> str:
    """Return what a redrive or replay did until its command ended, and what happens next.

    `what` is `redrive` or `replay`, `taken` is what it took, with the number. `outcomes` counts its deliveries.
    """
    ended = "interrupted" if state == "running" else state
    head = f"{what.capitalize()} {name} {ended}: {taken} taken, {counts_text(outcomes) or 'none delivered'}."
    if ended in ("interrupted", "paused"):
        return f"{head} `eventbridge {what}s resume {name[:8]}` continues it."
    if state == "cancelled":
        return f"{head} What it did not take stays as it is."
    if outcomes.get("pending"):
        return f"{head} The DAG eventbridge_retry_deliveries or `eventbridge deliver` tries the pending ones again."
    if outcomes.get("dead_lettered"):
        return f"{head} `eventbridge dead-letters list` shows why some became dead letters."
    return f"{head} Nothing of it is left to do."


def selection_text(selection: Mapping[str, Any], rate: float | None, options: Mapping[str, bool]) -> str:
    """Return what a redrive or replay selects, its rate, and the options that are set, as one text."""
    parts = [f"{key} {', '.join(value) if isinstance(value, list) else value}" for key, value in selection.items()]
    rates = [] if rate is None else [f"{rate:g}/s"]
    return "; ".join([*(parts or ["all"]), *rates, *(name for name, is_set in options.items() if is_set)])


def plural(number: int, one: str, many: str) -> str:
    """Return a number with its noun: `1 batch`, `2,000 batches`."""
    return f"{number:,} {one if number == 1 else many}"


def visible(value: str) -> str:
    """Return text with control characters escaped, so that the terminal shows them instead of acting on them."""
    return "".join(_escape(each) if unicodedata.category(each) in ("Cc", "Cf", "Cs") else each for each in value)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _terminal_width() -> int | None:
    """Return the width of the terminal in columns; None, which means no limit, if the output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _layout(
    columns: Sequence[str], cells: list[list[str]], numeric: list[bool], ids: Collection[str], room: int | None
) -> Iterable[str]:
    widths = _natural_widths(columns, cells)
    if room is not None and _total(widths) > room:
        short = [
            [_shorten_id(cell) if name in ids else cell for name, cell in zip(columns, row, strict=True)]
            for row in cells
        ]
        least = [
            width if number or name in ids else _minimum_width(name, [row[index] for row in short])
            for index, (name, number, width) in enumerate(
                zip(columns, numeric, _natural_widths(columns, short), strict=True)
            )
        ]
        widths = _narrow_columns(_natural_widths(columns, short), least, room)
        if _total(widths) > room:
            return _as_blocks(columns, cells)
        cells = short
    header, *lines = _as_lines(columns, cells, numeric, widths)
    return [styled(header, sys.stdout), *lines]


def _natural_widths(columns: Sequence[str], cells: list[list[str]]) -> list[int]:
    return [max(_width(name), *(_width(row[number]) for row in cells)) for number, name in enumerate(columns)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * len(widths)


def _minimum_width(name: str, cells: Iterable[str]) -> int:
    """Return the least width of a column of text: its longest word, up to the length at which words are broken."""
    longest = max((_width(word) for cell in cells for word in re.split(r"(?<=-)|\s", cell)), default=0)
    return max(_width(name), min(longest, _LONGEST_WORD))


def _narrow_columns(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Narrow the widest column of text repeatedly, until the row fits or no column can be narrower."""
    widths = list(widths)
    while _total(widths) > room:
        able = [number for number, width in enumerate(widths) if width > least[number]]
        if not able:
            break
        widths[max(able, key=lambda number: widths[number])] -= 1
    return widths


def _as_lines(
    columns: Sequence[str], cells: list[list[str]], numeric: list[bool], widths: Sequence[int]
) -> Iterable[str]:
    yield _table_line(columns, columns, numeric, widths)
    for row in cells:
        wrapped = [_wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
        for number in range(max(map(len, wrapped))):
            parts = [part[number] if number < len(part) else "" for part in wrapped]
            yield _table_line(columns, parts, numeric, widths)


def _table_line(columns: Sequence[str], parts: Sequence[str], numeric: Sequence[bool], widths: Sequence[int]) -> str:
    padded = []
    for name, part, right, width in zip(columns, parts, numeric, widths, strict=True):
        space = " " * (width - _width(part))
        padded.append(space + part if right else _paint(name, part) + space)
    return (_GAP + _GAP.join(padded)).rstrip()


def _as_blocks(columns: Sequence[str], cells: list[list[str]]) -> Iterable[str]:
    width = max(map(_width, columns))
    for number, row in enumerate(cells):
        if number:
            yield ""
        for name, cell in zip(columns, row, strict=True):
            yield f"{_GAP}{name.ljust(width)}{_GAP}{_paint(name, cell)}".rstrip()


def _paint(name: str, cell: str) -> str:
    """Return the cell of a column, in colour if it is a state."""
    return state_styled(cell, sys.stdout) if name in STATE_NAMES else cell


def _wrap(cell: str, width: int) -> list[str]:
    if _width(cell) <= width:
        return [cell]
    # half as many characters, because each may take two columns
    return textwrap.wrap(cell, width if _width(cell) == len(cell) else max(1, width // 2)) or [""]


def truncate(cell: str) -> str:
    """Return a cell, cut if it is very long."""
    return cell if len(cell) <= _MAX_CELL_LENGTH else cell[: _MAX_CELL_LENGTH - 1] + "…"


def _shorten_id(cell: str) -> str:
    found = _ID.fullmatch(cell)
    return cell[:_SHORT_ID] + (found[1] or "…") if found else cell


def _width(value: str) -> int:
    """Return how many columns of a terminal a string takes."""
    if value.isascii():
        return len(value)
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in value)
    return len(value) + wide - sum(unicodedata.combining(each) > 0 for each in value)
