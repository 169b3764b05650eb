"""The examples of responses in openapi.json are responses of a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from api.recorded import record, shape
from jsonschema import Draft202012Validator

from eventbridge.api.app import create_app
from eventbridge.api.descriptions import EXAMPLES


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The document openapi.json, whose models have no members but the described ones, unless they say so."""
    found: dict[str, Any] = json.loads(json.dumps(create_app(cast("Any", None)).openapi()))
    for schema in found["components"]["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return found


def responses(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield operation id and status, and the content, of each response that is not a refusal."""
    for call in (call for calls in document["paths"].values() for call in calls.values()):
        for status, response in call["responses"].items():
            if status.startswith("2"):
                (content,) = response["content"].values()
                yield f"{call['operationId']} {status}", content


def test_every_response_has_an_example_that_fits_its_model(document: dict[str, Any]) -> None:
    """With no member that the model does not describe."""
    wrong = []
    for name, content in responses(document):
        if "example" not in content:
            wrong.append(f"{name}: no example")
        elif content.get("schema"):
            schema = content["schema"] | {"components": document["components"]}
            errors = Draft202012Validator(schema).iter_errors(content["example"])
            wrong += [f"{name}: {each.json_path}: {each.message}" for each in errors]

    assert wrong == []


def differences(example: Any, found: Any, path: str = "$") -> Iterator[str]:
    """Yield where the members and types of an example differ from those of a response; null stands for any type."""
    if example is None or found is None:
        return
    if isinstance(example, dict) and isinstance(found, dict):
        if example.keys() != found.keys():
            yield f"{path}: {sorted(example)} != {sorted(found)}"
        for name in example.keys() & found.keys():
            yield from differences(example[name], found[name], f"{path}.{name}")
    elif isinstance(example, list) and isinstance(found, list):
        for number, each in enumerate(example):
            if all(list(differences(each, other)) for other in found):
                yield f"{path}[{number}]: no item of the response is like it"
    elif shape(example) != shape(found):
        yield f"{path}: {shape(example)} != {shape(found)}"


def test_the_examples_are_like_the_responses_of_a_server(tmp_path: Path) -> None:
    """The same calls get responses with the same members of the same types."""
    examples, found = json.loads(EXAMPLES.read_text()), record(tmp_path)

    named = [sorted((name, *sorted(of)) for name, of in each.items()) for each in (examples, found)]
    assert named[0] == named[1], "run: PYTHONPATH=tests:. python -m api.recorded"
    unlike = [
        f"{name} {status}: {each}"
        for name, of in examples.items()
        for status in of
        for each in differences(of[status], found[name][status])
    ]
    assert unlike == [], "run: PYTHONPATH=tests:. python -m api.recorded"
