"""The page of the HTTP API, generated from openapi.json.

`PYTHONPATH=tests python -m docs.http_api` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from eventbridge.api.app import create_app

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "http-api.md"
_HEAD = """# HTTP API

The calls of `eventbridge serve`. [Use the HTTP API](../howto/page.md#use-the-http-api) shows how to make them.
[Error codes](error-codes.md) explains refused calls.
`$URL/openapi.json` has the models of bodies and responses.
To send calls from the browser, open `$URL/page`, log in with a token, and choose *API*.
"""
#: The maximum length of a line of an example.
_LINE = 110


def page() -> str:
    """Return the text of the page."""
    document = create_app(cast("Any", None)).openapi()
    calls = [
        (call["tags"][0], f"{method.upper()} {path}", call)
        for path, of in document["paths"].items()
        for method, call in of.items()
    ]
    parts = [_HEAD]
    for tag in sorted({tag for tag, _, _ in calls}):
        parts.append(f"\n## {tag.capitalize()}\n")
        for _, name, call in sorted((each for each in calls if each[0] == tag), key=lambda each: each[1].split()[1]):
            parts += _call(name, call, document["components"]["schemas"])
    return "".join(parts)


def _call(name: str, call: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    yield f"\n### `{name}`\n\n`{call['operationId']}`: {_text(call['description'])}\n"
    rows = [
        (each["name"], each["in"], each.get("required", False), each.get("description", ""))
        for each in call.get("parameters", ())
    ]
    for content in call.get("requestBody", {}).get("content", {}).values():
        model = schemas.get(content["schema"].get("$ref", "").rpartition("/")[2], {})
        required = model.get("required", ())
        rows += [
            (member, "body", member in required, field.get("description", ""))
            for member, field in model.get("properties", {}).items()
        ]
    if rows:
        yield "\n| parameter | in | required | meaning |\n|---|---|---|---|\n"
        for parameter, where, is_required, meaning in rows:
            yield f"| `{parameter}` | {where} | {'yes' if is_required else 'no'} | {_text(meaning)} |\n"
    yield "\n| status | response |\n|---|---|\n"
    for status, response in call["responses"].items():
        yield f"| {status} | {_text(response['description'])} |\n"
    for status, response in call["responses"].items():
        for content in response.get("content", {}).values():
            if "example" in content:
                yield f"\nA response with {status}:\n\n```{_fenced(content['example'])}```\n"


def _fenced(example: Any) -> str:
    return f"text\n{example}" if isinstance(example, str) else f"json\n{_json(example)}\n"


def _json(value: Any, before: str = "", indent: str = "") -> str:
    """Return JSON; an object or array that does not fit into a line has a line for each member."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(before) + len(line) <= _LINE or not value or not isinstance(value, dict | list):
        return f"{indent}{before}{line}"
    deeper = f"{indent}  "
    if isinstance(value, dict):
        members = [_json(each, f"{json.dumps(name)}: ", deeper) for name, each in value.items()]
    else:
        members = [_json(each, "", deeper) for each in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{indent}{before}{first}\n" + ",\n".join(members) + f"\n{indent}{last}"


def _text(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
