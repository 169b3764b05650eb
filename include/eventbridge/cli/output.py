"""Output of the command line: lines for people, or with `--json` one JSON document; notes go to standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Annotated, Any, TextIO

import typer

from eventbridge.errors import UserError
from eventbridge.event.json_document import write_document
from eventbridge.event.plain import plain

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]

#: Exit code after a closed pipe (128 + SIGPIPE); 1 would look like a difference found.
CLOSED_PIPE = 141

#: An object or list that is no longer than this stands on one line.
_JSON_LINE = 60


def print_line(line: str = "") -> None:
    """Print a line on standard output; ends the command quietly if the reader closed the pipe (`| head`)."""
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        end_output(sys.stdout)
        raise typer.Exit(CLOSED_PIPE) from None


def end_output(*streams: TextIO) -> None:
    """Discard whatever is still written to these streams.

    Their readers are gone; flushing the buffers when the interpreter ends would fail once more, with a traceback.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())


def confirm(consequence: str, question: str) -> None:
    """State the consequence and ask for confirmation; the answer no ends the command with exit code 1.

    Raises UserError that names --yes if standard input is not a terminal.
    """
    if not sys.stdin.isatty():
        raise UserError(f"{consequence} Standard input is not a terminal: pass --yes to confirm")
    typer.confirm(f"{consequence} {question}", abort=True)


def note(text: str) -> None:
    """Print a note for people on standard error, beside the result."""
    sys.stderr.write(f"note: {text}\n")


def warn(text: str) -> None:
    """Print a warning on standard error: the command continues, but perhaps not as intended."""
    sys.stderr.write(f"warning: {text}\n")


def show_json(value: Any) -> None:
    """Print a value as indented JSON; times as ISO 8601, bytes as text or, where they are not UTF-8, as base64."""
    print_line(json_text(plain(value)))


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
    return line if len(line) <= _JSON_LINE else json_text(value, margin)


def _json_line(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_json_line(key)}: {_json_line(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_json_line, value)) + "]"
    return write_document(value)
