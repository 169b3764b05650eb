"""What programs read: each `--json` document has these fields of these types; a change here is a change for users."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cli.json_shapes import SHAPES

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "cli"


def shape(value: Any) -> Any:
    """Return a document with its scalars replaced by their types, and lists by their first item."""
    match value:
        case dict() if value and all("/" in key for key in value):
            return {"*": shape(next(iter(value.values())))}
        case dict():
            return {key: shape(item) for key, item in value.items()}
        case list():
            return [shape(value[0])] if value else []
        case None:
            return "null"
        case _:
            return type(value).__name__


@pytest.mark.parametrize("arguments", SHAPES, ids=lambda arguments: " ".join(arguments[:2]))
def test_a_document_has_its_shape(arguments: tuple[str, ...], delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """Field by field, type by type, after a delivery in which everything happened."""
    one = delivered.orders(1)
    listed = eventbridge("dead-letters", "list", "--target", "bad", "--json").json
    entries = str(delivered.folder / "dead-letters.jsonl")
    given = {"one.jsonl": one, "dead-letters.jsonl": entries, "BAD": listed[0]["name"]}
    given["FOLDER"] = str(delivered.folder / "new")

    result = eventbridge(*(given.get(argument, argument) for argument in arguments), "--json")

    assert result.code == 0
    assert shape(result.json) == SHAPES[arguments]


def test_times_are_iso_8601_in_utc(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """Every time has its zone, UTC, and reads as ISO 8601."""
    found = eventbridge("status", "--json").json

    for text in (found["now"], found["batches"][0]["planned_at"], found["targets"][0]["since"]):
        assert "T" in text
        assert datetime.fromisoformat(text).utcoffset() == timedelta(0)


def test_every_field_is_documented() -> None:
    """docs/reference/cli names every field of every document."""
    page = "\n".join(file.read_text() for file in PAGES.glob("*.md"))

    assert sorted(name for name in _names(SHAPES.values()) if f"`{name}`" not in page) == []


def _names(value: Any) -> set[str]:
    if isinstance(value, dict):
        ours = {
            key: item for key, item in value.items() if key not in ("event", "settings")
        }  # what is in an event is a user's, what is in settings is JSON Schema
        return {key for key in value if key != "*"} | _names(ours.values())
    return set() if isinstance(value, str) else {name for item in value for name in _names(item)}
