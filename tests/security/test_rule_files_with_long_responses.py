"""A rule file of one megabyte makes no response, and takes no memory, of hundreds: long texts in errors are cut."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbridge import bounded_call
from eventbridge.bounded_call import call_bounded
from eventbridge.control.check_rules import _check_file

LONG = "a" * 900_000
RULE = "buses: {b: {source: {type: embedded}}}\nrules:\n"
ANCHORS = ", ".join(f"&x{number} y" for number in range(250))
TARGETS = ", ".join(f"t{number}: {{type: htp}}" for number in range(250))
IMPOSSIBLE = ", ".join(f'{{numeric: [">", {number}]}}' for number in range(9_000))
FILES = {
    "anchors below a long key": f"rules:\n  ? {LONG}\n  : [{ANCHORS}]\n",
    "a rule with a long name": f"{RULE}  ? {LONG}\n  : {{bus: b, pattern: {{}}, targets: {{{TARGETS}}}}}\n",
    "keys below keys": "".join(f"{'  ' * level}{'k' * 200}{level}:\n" for level in range(90))
    + "".join(f"{'  ' * 90}k{number}: 1\n" for number in range(5_000)),
    "a long value": f"{RULE}  r: {{bus: {LONG}, pattern: {{}}, targets: {{t: {{type: file, path: x}}}}}}\n",
    "an unknown field": f"{RULE}  r: {{bus: b, {LONG}: 1, pattern: {{}}, targets: {{t: {{type: file, path: x}}}}}}\n",
    "warnings": f"{RULE}  r: {{bus: b, pattern: {{type: [{IMPOSSIBLE}]}}, targets: {{t: {{type: file, path: x}}}}}}\n",
}


@pytest.fixture(autouse=True)
def own_process() -> Iterator[None]:
    """A process whose limit of memory no other test has."""
    yield
    bounded_call.children.end_idle()


@pytest.mark.parametrize("name", FILES)
def test_a_response_has_a_bound(name: str) -> None:
    """Neither its size nor the memory of the check is a multiple of the file."""
    checked = call_bounded(_in_little_memory, FILES[name], seconds=20.0, remedy="Send less")

    assert bool(checked["errors"]) != (name == "warnings")
    assert checked["errors"] or checked["warnings"]
    assert len(json.dumps(checked, default=as_text)) < 1 << 20


def as_text(error: object) -> object:
    """Return an error of a rule file as JSON."""
    return str(error)


def _in_little_memory(content: str) -> dict[str, object]:
    resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 1 << 30))
    return _check_file(None, {}, Path("a.yaml"), content.encode())
