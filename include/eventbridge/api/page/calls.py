"""Serves the pages that describe the calls of the API, from openapi.json, each call with a form that sends it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from eventbridge.api.page.render import render
from eventbridge.api.page.session import Viewer, viewer
from eventbridge.errors import NotFoundError

router = APIRouter(prefix="/page", include_in_schema=False, default_response_class=Response)

_Document = Mapping[str, Any]
_MODELS = "#/components/schemas/"


@dataclass(frozen=True)
class Member:
    """A parameter of a call or a member of a model; `place` is path, query or header, and "" for a member."""

    name: str
    place: str
    type: str
    required: bool
    description: str


@dataclass(frozen=True)
class ShownCall:
    """A call, its parameters, an example of its body by content type, and its responses with models and examples."""

    method: str
    path: str
    name: str
    summary: str
    description: str
    parameters: tuple[Member, ...]
    bodies: dict[str, tuple[str, str]]
    responses: tuple[tuple[str, str, str, str], ...]


@router.get("/api")
def api(
    request: Request,
    found: Annotated[Viewer, Depends(viewer)],
    call: Annotated[str, Query(max_length=100)] = "",
    model: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """Return one call or one model, with all models that it refers to; without either, the list of both.

    Raises NotFoundError if there is no such call or model.
    """
    document = request.app.openapi()
    schemas = document["components"]["schemas"]
    values = {"viewer": found, "base": request.scope.get("root_path", "")}
    if call:
        shown, described = _find_call(document, call)
        return render(request, "api_call", values | {"call": shown, "models": _shown_models(schemas, described)})
    if model:
        if model not in schemas:
            raise NotFoundError(f"the API has no model {model!r}")
        models = _shown_models(schemas, {"$ref": f"{_MODELS}{model}"})
        return render(request, "api_model", values | {"name": model, "models": models})
    return render(request, "api", values | {"groups": call_groups(document), "models": sorted(schemas)})


@router.get("/api.js")
def script() -> Response:
    """Return the script that sends the calls of the page."""
    content = files("eventbridge.api.page").joinpath("api.js").read_bytes()
    return Response(content, media_type="text/javascript", headers={"cache-control": "max-age=300"})


def call_groups(document: _Document) -> dict[str, list[ShownCall]]:
    """Return the calls of openapi.json by their tags, both in order."""
    found: dict[str, list[ShownCall]] = {}
    for path, calls in sorted(document["paths"].items()):
        for method, call in calls.items():
            found.setdefault(call["tags"][0], []).append(_shown_call(document, method.upper(), path, call))
    return dict(sorted(found.items()))


def _find_call(document: _Document, name: str) -> tuple[ShownCall, _Document]:
    for path, calls in document["paths"].items():
        for method, call in calls.items():
            if call["operationId"] == name:
                return _shown_call(document, method.upper(), path, call), call
    raise NotFoundError(f"the API has no call {name!r}")


def _shown_models(schemas: _Document, described: Any) -> dict[str, tuple[str, list[Member]]]:
    """Return the description and the members of the models that a description refers to, directly or indirectly."""
    found: list[str] = []
    waiting = _references(described)
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found.append(name)
            waiting += _references(schemas[name])
    return {name: (schemas[name].get("description", ""), _members(schemas[name])) for name in found}


def _references(described: Any) -> list[str]:
    if isinstance(described, Mapping):
        own = described.get("$ref")
        if isinstance(own, str):
            return [own.removeprefix(_MODELS)] if own.startswith(_MODELS) else []
        return [name for each in described.values() for name in _references(each)]
    if isinstance(described, list):
        return [name for each in described for name in _references(each)]
    return []


def _shown_call(document: _Document, method: str, path: str, call: _Document) -> ShownCall:
    parameters = (
        Member(each["name"], each["in"], _type_name(each["schema"]), each.get("required", False), _text(each))
        for each in call.get("parameters", ())
    )
    bodies = call.get("requestBody", {}).get("content", {})
    return ShownCall(
        method,
        path,
        call["operationId"],
        call["summary"],
        call["description"],
        tuple(parameters),
        {kind: (_type_name(each["schema"]), _example(document, each)) for kind, each in bodies.items()},
        tuple(
            (status, each["description"], ", ".join(_models(each)), _response_example(each))
            for status, each in sorted(call["responses"].items())
        ),
    )


def _text(described: _Document) -> str:
    return str(described.get("description") or described["schema"].get("description", ""))


def _models(response: _Document) -> Iterable[str]:
    """Return the names of a response's models; a problem has the same one everywhere."""
    return (_type_name(each["schema"]) for each in response.get("content", {}).values() if each.get("schema"))


def _response_example(response: _Document) -> str:
    """Return the example of a response; "" without one."""
    example: Any = next((each["example"] for each in response.get("content", {}).values() if "example" in each), "")
    return example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)


def _example(document: _Document, body: _Document) -> str:
    """Return the example of a body: its own, or the first one of its model."""
    model = document["components"]["schemas"].get(body["schema"].get("$ref", "").removeprefix(_MODELS), {})
    example: Any = body.get("example") or next(iter(model.get("examples", ())), {})
    return json.dumps(example, indent=2)


def _members(schema: _Document) -> list[Member]:
    required = schema.get("required", ())
    return [
        Member(name, "", _type_name(each), name in required, each.get("description", ""))
        for name, each in schema.get("properties", {}).items()
    ]


def _type_name(schema: _Document) -> str:
    """Return the type of a value for people: the name of a model, `list of Rule`, `string or null`."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_MODELS)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type_name(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_type_name(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type", "any"))
