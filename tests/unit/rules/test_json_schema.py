"""The JSON Schema of rule files knows every field, accepts every valid example, and refuses a misspelt field."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from unit.rules.test_rule_page import examples

from eventbridge.rules.json_schema import required_settings, rule_file_schema
from eventbridge.rules.types import SOURCE_TYPES, TARGET_TYPES, fields_of
from eventbridge.rules.vocabulary import FIELDS

ROOT = Path(__file__).parents[3]
SCHEMA: dict[str, Any] = rule_file_schema()
SHIPPED = [
    *sorted((ROOT / "include" / "rules").glob("*.yaml*")),
    *sorted((ROOT / "demo").rglob("*.yaml")),
    *sorted((ROOT / "deploy" / "rules").glob("*.yaml")),
    *sorted((ROOT / "benchmarks").rglob("*.yaml")),
]


class _Loader(yaml.SafeLoader):
    """Reads dates as text, as rule files do."""


_LISTED = yaml.SafeLoader.yaml_implicit_resolvers.items()
_Loader.yaml_implicit_resolvers = {
    first: [each for each in resolvers if each[0] != "tag:yaml.org,2002:timestamp"] for first, resolvers in _LISTED
}


def problems(text: str) -> list[str]:
    """Return what the schema finds wrong in a rule file."""
    found = jsonschema.Draft7Validator(SCHEMA).iter_errors(yaml.load(text, Loader=_Loader))
    return [f"{error.json_path}: {error.message}" for error in found]


def test_the_schema_is_valid_itself() -> None:
    """It meets the meta-schema of draft 7."""
    jsonschema.Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("what", FIELDS)
def test_the_schema_has_every_field_and_explains_it(what: str) -> None:
    """Each item of the vocabulary has its fields, with a hover text."""
    name = what.removeprefix("a ").removeprefix("an ").replace("'s", "").replace(" ", "_")
    properties = SCHEMA["properties"] if name == "rule_file" else SCHEMA["definitions"][name]["properties"]

    assert set(fields_of(what)) <= set(properties)
    assert [field for field, schema in properties.items() if not schema["description"]] == []


@pytest.mark.parametrize(("page", "example"), examples())
def test_examples_of_the_pages_are_accepted(page: str, example: str) -> None:
    """Every example of rules in the documentation meets the schema."""
    assert problems(example) == []


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.name)
def test_rule_files_of_the_repository_are_accepted(file: Path) -> None:
    """The rules of the demo meet the schema."""
    assert problems(file.read_text()) == []


def test_a_misspelt_field_and_a_wrong_word_are_refused() -> None:
    """The schema finds what an editor should underline."""
    text = """
        buses: {orders: {source: {type: embeded}}}
        rules:
          big:
            bus: orders
            patern: {}
            pattern: {}
            priority: urgent
            targets: {log: {type: file, path: a.jsonl}}
    """

    assert len(problems(textwrap.dedent(text))) == 3


@pytest.mark.parametrize(
    ("kind", "required"),
    [
        (TARGET_TYPES.get("kafka"), ["connection", "topic"]),
        (TARGET_TYPES.get("file"), ["path"]),
        (TARGET_TYPES.get("http"), []),  # a url, or a connection that has one
        (SOURCE_TYPES.get("kafka"), ["connection"]),
        (SOURCE_TYPES.get("embedded"), []),
    ],
)
def test_required_settings_are_those_whose_absence_is_an_error(kind: Any, required: list[str]) -> None:
    """The readers of the built-in types say which settings a rule file must give, whatever else it has."""
    assert required_settings(kind) == required


def test_the_schema_in_the_repository_is_that_of_the_code() -> None:
    """Rule files of the repository name it in their first line."""
    file = ROOT / "docs" / "reference" / "rules.schema.json"

    assert json.loads(file.read_text()) == SCHEMA, "run: eventbridge rules schema > docs/reference/rules.schema.json"
    for each in SHIPPED:
        first = each.read_text().split("\n")[0]
        named = first.removeprefix("# yaml-language-server: $schema=")
        assert (each.parent / named).resolve() == file, each
