"""Everything that can be wrong in a transform's definition is found when it is read, all of it at once."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from eventbridge.transform import transform_mistakes


@pytest.mark.parametrize(
    "definition",
    [
        {},
        {"form": "ORIGINAL"},
        {"form": None, "value": None, "template": None, "missing": None},
        {"form": "CONSTANT", "value": None},
        {"form": "CONSTANT", "value": {"a": [1, 1.5, "x", None, True]}, "template": None, "missing": "null"},
        {"form": "JSONPATH", "value": "$"},
        {"form": "JSONPATH", "value": "$.data.x", "missing": "error"},
        {"form": "TEMPLATE", "template": "text"},
        {"form": "TEMPLATE", "template": "${eb.rule} ${x}", "value": {"x": "$.data.x", "unused": "constant"}},
    ],
)
def test_what_is_right_has_no_mistakes(definition: dict[str, Any]) -> None:
    """None stands for a field that is not there; a name that no placeholder asks for is no mistake."""
    assert transform_mistakes(definition) == []


@pytest.mark.parametrize(
    ("definition", "path", "message", "remedy"),
    [
        ("ORIGINAL", "$", "a transform is a mapping", "form: ORIGINAL"),
        ({"form": "FIELDS", "value": 1}, "$.form", "FIELDS is not in this version", "ORIGINAL, CONSTANT, JSONPATH or"),
        (
            {"form": "JSONATA", "value": "x"},
            "$.form",
            "JSONATA is not in this version",
            "ORIGINAL, CONSTANT, JSONPATH or",
        ),
        ({"form": "SQL", "value": "x"}, "$.form", "SQL is not in this version", "ORIGINAL, CONSTANT, JSONPATH or"),
        (
            {"form": "ORIGINAL", "steps": []},
            "$.steps",
            "steps is not in this version",
            "form, value, template, missing",
        ),
        ({"form": "Template"}, "$.form", "there is no form 'Template'", "Did you mean TEMPLATE?"),
        ({"form": "JSON_PATH"}, "$.form", "there is no form 'JSON_PATH'", "Did you mean JSONPATH?"),
        ({"form": "xyz"}, "$.form", "there is no form 'xyz'", "Use ORIGINAL, CONSTANT, JSONPATH or TEMPLATE"),
        ({"form": 5}, "$.form", "there is no form 5", "Use ORIGINAL"),
        ({"value": "$.data"}, "$", "has no form", "Write form:"),
        ({"template": "x"}, "$", "has no form", "Write form:"),
        ({"form": "ORIGINAL", "vlaue": 1}, "$.vlaue", "has no field vlaue", "Did you mean value?"),
        ({"form": "ORIGINAL", "a b": 1}, '$["a b"]', "has no field a b", "form, value, template, missing"),
        ({"form": "ORIGINAL", 'a"b': 1}, '$["a\\"b"]', "has no field", "form, value, template, missing"),
        ({"form": "ORIGINAL", 1: 1}, '$["1"]', "has no field 1", "form, value, template, missing"),
        ({"form": "ORIGINAL", "missing": "skip"}, "$.missing", "missing is 'skip'", "missing: error"),
        ({"form": "ORIGINAL", "missing": False}, "$.missing", "missing is False", "missing: error"),
        ({"form": "ORIGINAL", "value": "x"}, "$.value", "ORIGINAL takes no value", "CONSTANT, JSONPATH or TEMPLATE"),
        ({"form": "ORIGINAL", "template": "x"}, "$.template", "ORIGINAL takes no template", "form: TEMPLATE"),
        ({"form": "CONSTANT"}, "$", "CONSTANT needs a value", "value:"),
        (
            {"form": "CONSTANT", "value": 1, "template": "x"},
            "$.template",
            "CONSTANT takes no template",
            "form: TEMPLATE",
        ),
        ({"form": "CONSTANT", "value": float("inf")}, "$.value", "no JSON", "quotes"),
        ({"form": "CONSTANT", "value": {"a": date(2026, 1, 1)}}, "$.value", "no JSON", "quotes"),
        ({"form": "JSONPATH"}, "$", "JSONPATH needs a path", "$.data.name"),
        ({"form": "JSONPATH", "value": ["$.data"]}, "$.value", "JSONPATH needs a path", "$.data.name"),
        ({"form": "JSONPATH", "value": "data.x"}, "$.value", "wrong at character 1", "$.data.name"),
        ({"form": "JSONPATH", "value": "$", "template": "x"}, "$.template", "JSONPATH takes no template", "TEMPLATE"),
        ({"form": "TEMPLATE"}, "$", "TEMPLATE needs a text", "${name}"),
        ({"form": "TEMPLATE", "template": ""}, "$.template", "TEMPLATE needs a text", "${name}"),
        ({"form": "TEMPLATE", "template": {"a": 1}}, "$.template", "TEMPLATE needs a text", "${name}"),
        ({"form": "TEMPLATE", "template": "x", "value": "$.data"}, "$.value", "mapping of names", "id: $.data.id"),
        ({"form": "TEMPLATE", "template": "x", "value": {"a b": 1}}, '$.value["a b"]', "cannot be a name", "letters"),
        ({"form": "TEMPLATE", "template": "x", "value": {5: 1}}, '$.value["5"]', "is no text", "quotes"),
        ({"form": "TEMPLATE", "template": "x", "value": {"eb.x": 1}}, '$.value["eb.x"]', "is taken", "another name"),
        ({"form": "TEMPLATE", "template": "x", "value": {"a": "$.data."}}, "$.value.a", "character 7", "Remove"),
        ({"form": "TEMPLATE", "template": "x", "value": {"a": date(2026, 1, 1)}}, "$.value.a", "no JSON", "quotes"),
        ({"form": "TEMPLATE", "template": "<${}>"}, "$.template", "line 1, column 2 has no name", "${name}"),
        ({"form": "TEMPLATE", "template": '{"a": 1,}'}, "$.template", "no JSON", "Correct it"),
        ({"form": "TEMPLATE", "template": "\n${eb.rul}"}, "$.template", "line 2, column 1", "Did you mean ${eb.rule}?"),
        (
            {"form": "TEMPLATE", "template": "${custmer}", "value": {"customer": 1}},
            "$.template",
            "${custmer} at line 1, column 1 is not defined",
            "Did you mean ${customer}? If not, define custmer under value, such as custmer: $.data.custmer; "
            "for the text itself write $${custmer}",
        ),
        ({"form": "TEMPLATE", "template": "${xyzzy}"}, "$.template", "is not defined", "Define xyzzy under value"),
    ],
)
def test_a_mistake_is_told_with_path_and_remedy(definition: Any, path: str, message: str, remedy: str) -> None:
    """One mistake, with its JSON path below the transform, what it is, what to write."""
    mistakes = transform_mistakes(definition)

    assert [mistake.path for mistake in mistakes] == [path]
    assert message in mistakes[0].message
    assert remedy in mistakes[0].remedy
    assert str(mistakes[0]).endswith((".", "?"))
    assert not mistakes[0].message.endswith(".")


def test_all_mistakes_are_told_at_once() -> None:
    """Fields, names, paths and placeholders: one reading finds them all."""
    mistakes = transform_mistakes(
        {
            "form": "TEMPLATE",
            "missing": "skip",
            "steps": [],
            "value": {"a": "$.data..x", "b c": 1, "d": float("nan")},
            "template": "${a} ${d} ${} ${e} ${f}",
        }
    )

    assert [mistake.path for mistake in mistakes] == [
        "$.steps",
        "$.missing",
        "$.value.a",
        '$.value["b c"]',
        "$.value.d",
        "$.template",
        "$.template",
        "$.template",
    ]


def test_a_name_with_a_wrong_path_is_defined_all_the_same() -> None:
    """One mistake is told once: what uses the name is not at fault."""
    mistakes = transform_mistakes({"form": "TEMPLATE", "value": {"a": "$.data..x"}, "template": "${a}"})

    assert [mistake.path for mistake in mistakes] == ["$.value.a"]
