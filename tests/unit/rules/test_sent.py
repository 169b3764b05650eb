"""A pattern or transform of a request is read from JSON or YAML; errors have a line and a path."""

from __future__ import annotations

import json

import pytest

from eventbridge.errors import UserError
from eventbridge.event.json_document import parse_value, write_document
from eventbridge.rules.model import Transform
from eventbridge.rules.sent import changed_rule_text, read_sent_pattern, read_sent_transform, transform_text, yaml_text

RULE = """  big:
    bus: orders
    pattern: {type: [order.placed]}   # as written
    targets:
      crm: {type: http, url: "https://crm.example", retry: {policy: custom, max_delay: 60s}}
"""


def test_a_pattern_is_the_same_in_both_notations() -> None:
    """YAML, with lists and mappings in either style, reads as JSON does."""
    yaml = "type: [order.placed]\ndata:\n  amount:\n  - numeric: ['>', 10.50]\n"
    as_json = '{"type": ["order.placed"], "data": {"amount": [{"numeric": [">", 10.50]}]}}'

    assert read_sent_pattern(yaml) == read_sent_pattern(as_json)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("type: [a]\ndata: {a: [{nmeric: ['>', 1]}]}", "line 2, $.data.a[0]: unknown operator"),
        ('{"type": ["a"],\n "data": {"a": 1}}', "line 2, $.data.a: a number where a list is expected"),
        ('{"type": ["a"]\n "data": {"a": [1]}}', "line 2, $: invalid YAML"),
        ("[1]", "line 1, $: a list, not a JSON object"),
        ("# nothing", "it is empty"),
        ("a: &x [1]\nb: *x", "line 1, $.a: "),
    ],
    ids=["operator", "value", "syntax", "list", "empty", "anchor"],
)
def test_an_error_in_a_pattern_has_its_line_and_path(text: str, where: str) -> None:
    """As errors in rule files do."""
    with pytest.raises(UserError) as refused:
        read_sent_pattern(text)

    assert str(refused.value).startswith("This is not a pattern: ")
    assert where in str(refused.value)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("form: TEMPLAT", "line 1, $.form: there is no form 'TEMPLAT'"),
        ("form: TEMPLATE\nvalue:\n  id: $.data..id[\ntemplate: '${id}'", "line 3, $.value.id"),
        ("- 1", "line 1, $: a transform must be a mapping"),
    ],
    ids=["form", "path", "list"],
)
def test_an_error_in_a_transform_has_its_line_and_path(text: str, where: str) -> None:
    """As errors in rule files do."""
    with pytest.raises(UserError, match="This is not a transform: ") as refused:
        read_sent_transform(text)

    assert where in str(refused.value)


@pytest.mark.parametrize(
    "value",
    [
        [
            100,
            1.10,
            "yes",
            "0x1F",
            "1:30",
            "null",
            "~",
            "=",
            "2026-01-01",
            " a",
            "a: b",
            "#",
            "line\nbreak\n",
            "\x07",
            "Zürich",
        ],
        {"a b": {"": []}, "yes": None, "deep": {"list": [[{"numeric": [">", 1]}]]}},
    ],
    ids=["values", "keys"],
)
def test_yaml_text_holds_a_value_exactly(value: object) -> None:
    """Numbers stay as written, and text that looks like another value stays text."""
    written = json.dumps(value).replace("1.1,", "1.10,")
    read = read_sent_transform(f"form: CONSTANT\nvalue:\n{_indented(yaml_text(parse_value(written)))}")

    assert write_document(read.value) == write_document(parse_value(written))


def _indented(text: str) -> str:
    return "".join(f"  {line}" for line in text.splitlines(keepends=True))


def test_a_transform_is_written_without_its_defaults() -> None:
    """And reads as the same transform."""
    text = "form: TEMPLATE\nvalue: {id: $.data.id}\ntemplate: |-\n  <id>\n  ${id}\nmissing: error\n"
    read = read_sent_transform(text)

    assert set(transform_text(read).splitlines()) == set(text.splitlines())
    assert read_sent_transform(transform_text(read)) == read
    assert transform_text(Transform()) == "form: ORIGINAL\n"


def test_a_changed_rule_is_a_rule_file() -> None:
    """Everything but the pattern and the transform stays as written."""
    changed = changed_rule_text(RULE, "big", "type: [order.paid]", "crm", "form: JSONPATH\nvalue: $.data.id")

    assert changed == (
        "rules:\n  big:\n    bus: orders\n    pattern:\n      type: [order.paid]\n    targets:\n      crm:\n"
        "        type: http\n        url: https://crm.example\n        retry: {policy: custom, max_delay: 60s}\n"
        "        transform: {form: JSONPATH, value: $.data.id}\n"
    )
    assert changed_rule_text(RULE, "big", "type: [" + "a" * 70_000 + "]") is None
