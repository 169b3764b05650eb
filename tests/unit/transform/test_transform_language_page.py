"""docs/reference/transforms.md: every example on the page is executed, and does what the page says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from eventbridge.errors import RuleFileError, TransformFailed
from eventbridge.event.cloudevent import parse_event
from eventbridge.rules import Target
from eventbridge.rules.load import load_rules
from eventbridge.transform import Rendered, Scope, compile_transform
from eventbridge.transform.definition import FORMS
from eventbridge.transform.fields import OPERATIONS
from eventbridge.transform.fill import PREDEFINED

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "transforms.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w+) (event|target|result|refused|failed|sql|gives)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SCOPE = Scope(
    "docs", "flights", "desk", "0190aaaa-0000-8000-8000-000000000001", datetime(2013, 1, 1, 10, 17, 2, 250_000, UTC)
)
CONTENT_TYPES = {"json": "application/json", "text": "text/plain; charset=utf-8"}


class Example(NamedTuple):
    """One target of the page, the event before it and the block after it."""

    line: int
    event: str
    target: str
    language: str
    kind: str
    shown: str


def examples() -> Iterator[Example]:
    """Yield the page's examples in order."""
    event = target = ""
    for fence in FENCE.finditer(PAGE):
        language, kind, text = fence.groups()
        if kind == "event":
            event = text
        elif kind in ("sql", "gives"):
            continue  # for Spark: tests/spark/test_spark_sql.py
        elif kind == "target":
            assert not target, "a target without a result"
            target = text
        else:
            yield Example(PAGE.count("\n", 0, fence.start()) + 1, event, target, language, kind, text.rstrip("\n"))
            target = ""
    assert not target, "a target without a result"


def read_target(text: str, folder: Path) -> Target:
    """Return the target of a rule file that holds this part of one."""
    lines = "".join(f"        {line}\n" for line in text.splitlines())
    (folder / "rules.yaml").write_text(
        "buses: {flights: {source: {type: embedded}}}\n"
        "rules:\n  docs:\n    bus: flights\n    pattern: {}\n    targets:\n      desk:\n"
        "        type: http\n        url: https://desk.example/\n" + lines,
        encoding="utf-8",
    )
    return load_rules(folder).rules["docs"].targets["desk"]


def render(target: Target, event: str) -> Rendered:
    """Return what the target receives."""
    renderer = compile_transform(target.transform, content_mode=target.content_mode)
    return renderer.render(parse_event(event.encode(), max_bytes=1_000_000), SCOPE)


def as_http(rendered: Rendered) -> str:
    """Return headers and body as the page shows them."""
    headers = {"Content-Type": rendered.content_type, **(rendered.headers or {})}
    return "".join(f"{name}: {value}\n" for name, value in headers.items()) + "\n" + rendered.payload.decode()


@pytest.mark.parametrize("example", list(examples()), ids=lambda example: f"line {example.line}")
def test_an_example_does_what_the_page_shows(example: Example, tmp_path: Path) -> None:
    """The target, read as a rule file, makes of the event what is shown; refusals and failures are the very words."""
    if example.kind == "refused":
        with pytest.raises(RuleFileError) as caught:
            read_target(example.target, tmp_path)
        found = "\n".join(
            f"$.{error.path.removeprefix('$.rules.docs.targets.desk.')}: {error.message}. {error.remedy}"
            for error in caught.value.errors
        )
        assert found == example.shown
        return
    target = read_target(example.target, tmp_path)
    if example.kind == "failed":
        with pytest.raises(TransformFailed) as failed:
            render(target, example.event)
        assert str(failed.value) == example.shown
        return
    rendered = render(target, example.event)

    if example.language == "http":
        assert as_http(rendered) == example.shown
    else:
        assert rendered.payload.decode().rstrip("\n") == example.shown
        assert rendered.content_type == CONTENT_TYPES[example.language]


def test_the_page_has_a_section_for_each_form() -> None:
    """Each form is a section with an example, those to come are named, and so is everything predefined."""
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    with_examples = [section.split("\n")[0] for section in sections if "```yaml target" in section]

    assert with_examples == list(FORMS)
    assert all(f"`{name}`" in PAGE for name in PREDEFINED)


def test_the_page_has_a_section_for_each_operation() -> None:
    """Each operation of FIELDS has a section below it, in their order, and names each of its options."""
    fields = PAGE.split("\n## FIELDS\n")[1].split("\n## ")[0]
    sections = {section.split("\n")[0]: section for section in fields.split("\n### ")[1:]}

    assert list(sections) == list(OPERATIONS)
    assert all("```yaml target" in section for section in sections.values())
    for operation, (_, options) in OPERATIONS.items():
        reported = sections[operation] + fields.split("\n### ")[0]
        assert [option for option in options if option not in reported] == []


def test_every_block_of_the_page_is_an_example() -> None:
    """No block stands beside the test: each says what it is."""
    assert len(FENCE.findall(PAGE)) * 2 == len(re.findall(r"^```", PAGE, flags=re.MULTILINE))
    assert all(json.loads(fence[2]) for fence in FENCE.findall(PAGE) if fence[1] == "event")
