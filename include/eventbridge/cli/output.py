"""How the command line shows a result: as a table for people, or as one JSON document with `--json`."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]


def show_json(value: Any) -> None:
    """Print a value as indented JSON; times as ISO 8601, bytes as text or, where they are not UTF-8, as base64."""
    typer.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))


def plain(value: Any) -> Any:
    """Return a value as JSON's own types."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return text(value)
    if isinstance(value, str) or not isinstance(value, Iterable):
        return value
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    return [plain(item) for item in value]


def text(value: bytes) -> str:
    """Return bytes as text if they are UTF-8, else as base64 behind the word `base64:`."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(value).decode()


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under a title; numbers are aligned to the right, an empty table says so in one line."""
    filled = [list(row) for row in rows]
    if not filled:
        typer.echo(f"{title}: none")
        return
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float) for row in filled)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in filled:
        table.add_row(*(_cell(value) for value in row))
    Console(soft_wrap=False).print(table)


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else str(value)
