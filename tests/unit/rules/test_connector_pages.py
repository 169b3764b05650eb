"""Each connector's page has every field of its source and target, with the default that the model has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from eventbridge.config.quantities import write_duration
from eventbridge.rules.fields import Fields
from eventbridge.rules.model import Source
from eventbridge.rules.node import Location, Node
from eventbridge.rules.types import SOURCE_TYPES, TARGET_TYPES, SourceType, TargetType

PAGES = Path(__file__).parents[3] / "docs" / "howto"
_NOWHERE = Location(Path("none.yaml"), 1, 1)


class Asked(Fields):
    """A mapping that holds `given` alone; it notes the default of each field that is asked for."""

    def __init__(self, given: dict[str, str]) -> None:
        nodes = {name: Node(f"$.{name}", _NOWHERE, _NOWHERE, value) for name, value in given.items()}
        super().__init__(Node("$", _NOWHERE, _NOWHERE, nodes), [], "a target")
        self.defaults: dict[str, str] = {}

    def get(self, name: str, *, required: bool = False) -> Node | None:
        self.defaults.setdefault(name, "required" if required else "none")
        return super().get(name, required=required)

    def text(self, name: str, default: Any = "", *, required: bool = False) -> Any:
        if default:
            self.defaults[name] = f"`{default}`"
        return super().text(name, default, required=required)

    def flag(self, name: str, *, default: Any) -> Any:
        self.defaults[name] = "`true`" if default else "`false`"
        return super().flag(name, default=default)

    def duration(self, name: str, default: Any, low: float, high: float) -> Any:
        self.defaults[name] = "none" if default is None else f"`{write_duration(default)}`"
        return super().duration(name, default, low, high)

    def whole(self, name: str, default: Any, low: int, high: int) -> Any:
        self.defaults[name] = f"`{default}`"
        return super().whole(name, default, low, high)

    def choice(self, name: str, default: Any, *choices: Any, **more: Any) -> Any:
        self.defaults[name] = f"`{default}`"
        return super().choice(name, default, *choices, **more)


def fields_of(of: SourceType | TargetType) -> dict[str, str]:
    """Return the fields of a type, with their defaults as pages write them; `mode: pop` has fields of its own."""
    assert of.read is not None
    found: dict[str, str] = {}
    for given in ({}, {"mode": "pop"}):
        asked = Asked(given)
        of.read(asked) if isinstance(of, SourceType) else of.read(asked, object())  # type: ignore[arg-type, call-arg]
        found |= asked.defaults
    if isinstance(of, SourceType):
        found |= {"topics": f"`[{', '.join(Source.model_fields['topics'].default)}]`", "start_at": "`latest`"}
    return {name: found[name] for name in of.own_words}


@pytest.mark.parametrize(
    ("page", "heading", "of"),
    [
        ("kafka", "Fields of the source", SOURCE_TYPES.get("kafka")),
        ("kafka", "Fields of the target", TARGET_TYPES.get("kafka")),
        ("rocketmq", "Fields of the source", SOURCE_TYPES.get("rocketmq")),
        ("rocketmq", "Fields of the target", TARGET_TYPES.get("rocketmq")),
        ("s3", "Fields of the target", TARGET_TYPES.get("s3")),
        ("airflow", "Fields of the target", TARGET_TYPES.get("airflow")),
        ("sql", "Fields of the target", TARGET_TYPES.get("sql")),
        ("delta", "Fields of the target", TARGET_TYPES.get("delta")),
        ("iceberg", "Fields of the target", TARGET_TYPES.get("iceberg")),
        ("pull-queue", "Fields of the target", TARGET_TYPES.get("queue")),
        ("sqs", "Fields of the source", SOURCE_TYPES.get("sqs")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_page_has_each_field_with_its_default(page: str, heading: str, of: SourceType | TargetType) -> None:
    """Of those of the type alone; what all sources or targets have stands on the page of rule files."""
    path = next(path for path in (PAGES / f"connect-{page}.md", PAGES / f"{page}.md") if path.exists())
    (section,) = re.findall(rf"^##+ {heading}\n(.*?)(?=^##|\Z)", path.read_text(), re.MULTILINE | re.DOTALL)

    assert dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE)) == fields_of(of)
