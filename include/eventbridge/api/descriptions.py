"""Builds the descriptions of calls in openapi.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI

from eventbridge.api.error_codes import CODES, Kind
from eventbridge.api.refusal import PROBLEM, Problem

#: Responses by operation id and status, recorded from a server by `tests/api/recorded.py`.
EXAMPLES: Final = Path(__file__).with_name("examples.json")


class DescribedApi(FastAPI):
    """An application whose openapi.json has one schema for all problems."""

    def openapi(self) -> dict[str, Any]:
        """Return openapi.json; it is built once."""
        if not self.openapi_schema:
            found = super().openapi()
            problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas = found["components"]["schemas"]
            schemas |= problem.pop("$defs") | {"Problem": problem}
            for name, schema in schemas.items():
                schemas[name] = _as_object(schema)
            _add_examples(found["paths"])
        return self.openapi_schema or {}


def _add_examples(paths: Mapping[str, Mapping[str, dict[str, Any]]]) -> None:
    """Add the recorded responses to the descriptions of calls."""
    examples = json.loads(EXAMPLES.read_text())
    for call in (call for calls in paths.values() for call in calls.values()):
        for status, example in examples.get(call["operationId"], {}).items():
            for content in call["responses"][status]["content"].values():
                content["example"] = example


def _as_object(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a named tuple as that of an object, because responses write it so; other schemas as is."""
    if "prefixItems" not in schema:
        return schema
    members = {each["title"].lower().replace(" ", "_"): each for each in schema["prefixItems"]}
    described = {"description": schema["description"]} if "description" in schema else {}
    return {"type": "object", "properties": members, "required": list(members)} | described


def problems(kind: Kind, statuses: Mapping[int, str]) -> dict[int | str, dict[str, Any]]:
    """Return the descriptions of refused calls of a kind by status, each with the codes that such calls return."""
    return {
        status: {"description": f"{text} {_codes(kind, status)}".strip(), **PROBLEM}
        for status, text in statuses.items()
    }


def described(operation: str, tag: str, model: Any, *, accepted: Any = None) -> dict[str, Any]:
    """Return the arguments that describe a route: its operation id, its tag, and the models of its responses.

    `accepted` is the model of the 202 response, whose `Location` header leads to the record that the call made.
    """
    responses: dict[int, dict[str, Any]] = {200: {"model": model, "description": "The result."}}
    if accepted is not None:
        location = {"description": "The URL of what was recorded.", "schema": {"type": "string"}}
        responses[200]["description"] = "The dry run."
        responses[202] = {
            "model": accepted,
            "description": "It is recorded, and is carried out later.",
            "headers": {"Location": location},
        }
    return {"operation_id": operation, "tags": [tag], "responses": responses}


def _codes(kind: Kind, status: int) -> str:
    named = [f"`{code}`" for code, each in CODES.items() if each.status == status and kind in each.calls]
    return f"Codes: {', '.join(named)}." if named else ""
