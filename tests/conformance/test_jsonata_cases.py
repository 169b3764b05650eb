"""Every conformance case of the JSONATA form: null, undefined, numbers, text and functions in expressions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transform_scope import SCOPE

from eventbridge.errors import TransformFailed
from eventbridge.event.cloudevent import parse_event
from eventbridge.event.json_document import parse_value, write_document
from eventbridge.rules import Transform
from eventbridge.transform import compile_transform

GROUPS: Any = parse_value((Path(__file__).parent / "jsonata.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("data", "test"),
    [
        pytest.param(group["data"], test, id=f"{group['description']}: {test['expression']}")
        for group in GROUPS
        for test in group["tests"]
    ],
)
def test_an_expression_gives_the_result_of_the_case(data: Any, test: Any) -> None:
    """The result equals the case's to the last digit, or fails with its message; a case without result is undefined."""
    document = {"specversion": "1.0", "id": "e", "source": "/s", "type": "t", "data": data}
    event = parse_event(write_document(document).encode(), max_bytes=1_000_000)
    missing = "null" if "result" in test else "error"
    renderer = compile_transform(Transform(form="JSONATA", value=test["expression"], missing=missing))
    if "result" in test:
        rendered = renderer.render(event, SCOPE)
        assert rendered.payload.decode() == write_document(test["result"])
        assert rendered.content_type == "application/json"
        return
    with pytest.raises(TransformFailed) as failed:
        renderer.render(event, SCOPE)

    assert str(failed.value) == test.get("failed", "the expression has no value for this event")
