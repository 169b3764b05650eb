"""Every conformance case of the FIELDS form: the cases define the result of each operation on an event's data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transform_scope import SCOPE

from eventbridge.errors import TransformFailed
from eventbridge.event.cloudevent import parse_event
from eventbridge.event.json_document import parse_value, write_document
from eventbridge.rules import Transform
from eventbridge.transform import Scope, compile_transform, transform_errors
from eventbridge.transform.fields import OPERATIONS

CASES = Path(__file__).parent / "steps"


def read_cases(name: str) -> Any:
    """Return the groups of a case file, numbers as they are written."""
    return parse_value((CASES / f"{name}.json").read_text(encoding="utf-8"))


def cases() -> list[Any]:
    """Return (group, test) of all operations, named by their descriptions."""
    return [
        pytest.param(group, test, id=f"{name}: {group['description']}: {test['description']}")
        for name in OPERATIONS
        for group in read_cases(name)
        for test in group["tests"]
    ]


def rendered(group: Any, test: Any, scope: Scope = SCOPE) -> str:
    """Return the data that the steps of a group leave of a test's."""
    transform = Transform(form="FIELDS", steps=group["steps"], missing=group.get("missing", "skip"))
    data = test.get("data_text") or (write_document(test["data"]) if "data" in test else None)
    body = '{"specversion":"1.0","id":"e","source":"/s","type":"t"' + (f',"data":{data}' if data else "") + "}"
    event = parse_event(body.encode(), max_bytes=1_000_000)
    before = write_document(event.document)
    try:
        return compile_transform(transform, content_mode="data").render(event, scope).payload.decode()
    finally:
        assert write_document(event.document) == before, "the event itself was changed"


@pytest.mark.parametrize(("group", "test"), cases())
def test_steps_give_the_result_of_the_case(group: Any, test: Any) -> None:
    """The data equals the case's to the last digit, or the failure has its message; the event stays unchanged."""
    if "failed" in test:
        with pytest.raises(TransformFailed) as failed:
            rendered(group, test)
        assert str(failed.value) == test["failed"]
        return

    assert rendered(group, test) == write_document(test["result"])


def test_each_operation_has_a_case_file() -> None:
    """Every operation has a case file, and every case file an operation."""
    assert {file.stem for file in CASES.glob("*.json")} == {*OPERATIONS, "invalid_steps"}


@pytest.mark.parametrize("test", [pytest.param(test, id=test["description"]) for test in read_cases("invalid_steps")])
def test_errors_of_steps_are_found_where_they_are(test: Any) -> None:
    """Every error is found at its path with message and remedy."""
    errors = transform_errors({"form": "FIELDS", "steps": test["steps"]})

    assert [[error.path, error.message] for error in errors] == test["errors"]
    assert all(test.get("remedy", "") in error.remedy and error.remedy for error in errors)
