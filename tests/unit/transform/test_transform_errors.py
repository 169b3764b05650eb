"""Everything that can be wrong in a transform's definition is found when it is read, all of it at once."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from eventbridge.transform import transform_errors


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
        {"form": "FIELDS", "steps": [{"delete": "$.data.x"}], "missing": "skip", "value": None},
        {"form": "JSONATA", "value": "data.x[y > 1]", "missing": "error"},
        {"form": "SQL", "value": "upper(data:x::string)", "missing": "error"},
        {"form": "JSONATA", "value": "$match(data.x, /[a||b]/)"},  # Python warns of a set union
        {"form": "TEMPLATE", "template": "${eb.rule} ${x}", "value": {"x": "$.data.x"}},
        {"form": "TEMPLATE", "template": "<x> {{x}} ${x}", "value": {"x": "$.data.x"}},
    ],
)
def test_a_correct_transform_has_no_errors(definition: dict[str, Any]) -> None:
    """None stands for a field that is not there; text beside a placeholder may look like another language's."""
    assert transform_errors(definition) == []


@pytest.mark.parametrize(
    ("definition", "path", "message", "remedy"),
    [
        ("ORIGINAL", "$", "a transform must be a mapping", "form: ORIGINAL"),
        ({"form": "SQL"}, "$", "SQL form needs an expression", "data:name::string"),
        ({"form": "SQL", "value": 5}, "$.value", "SQL form needs an expression", "data:name::string"),
        ({"form": "SQL", "value": " "}, "$.value", "the expression is empty", "Write one"),
        ({"form": "SQL", "value": "(id"}, "$.value", "does not close the (, line 1, column 1", "Close it"),
        ({"form": "SQL", "value": "id", "steps": []}, "$.steps", "SQL form does not accept steps", "form: FIELDS"),
        ({"form": "ORIGINAL", "steps": []}, "$.steps", "ORIGINAL form does not accept steps", "form: FIELDS"),
        (
            {"form": "TEMPLATE", "template": "x", "steps": []},
            "$.steps",
            "TEMPLATE form does not accept steps",
            "form: FIELDS",
        ),
        ({"steps": [{"delete": "$.data.x"}]}, "$", "has no form", "Write form:"),
        ({"form": "FIELDS"}, "$", "FIELDS needs a list of steps", "- delete: $.data.name"),
        ({"form": "FIELDS", "steps": []}, "$.steps", "FIELDS needs a list of steps", "- delete: $.data.name"),
        (
            {"form": "FIELDS", "steps": [{"delete": "$.data.x"}], "value": 1},
            "$.value",
            "FIELDS form does not accept value",
            "form:",
        ),
        (
            {"form": "FIELDS", "steps": [{"delete": "$.data.x"}], "missing": "null"},
            "$.missing",
            "missing is 'null', but must be skip or error",
            "missing: error",
        ),
        ({"form": "CONSTANT", "value": 1, "missing": "skip"}, "$.missing", "must be null or error", "missing: error"),
        ({"form": "JSONATA"}, "$", "JSONATA form needs an expression", "data.name"),
        ({"form": "JSONATA", "value": 5}, "$.value", "JSONATA form needs an expression", "data.name"),
        ({"form": "JSONATA", "value": " \n"}, "$.value", "the expression is empty", "data.name"),
        (
            {"form": "JSONATA", "value": "a", "template": "x"},
            "$.template",
            "JSONATA form does not accept template",
            "TEMPLATE",
        ),
        ({"form": "JSONATA", "value": "data.("}, "$.value", "at line 1, column 7: expected )", "docs.jsonata.org"),
        ({"form": "JSONATA", "value": "(\n  a\n  && b\n)"}, "$.value", "at line 3, column 4: the symbol &", "jsonata"),
        ({"form": "JSONATA", "value": '{"a" 1}'}, "$.value", "at line 1, column 6: expected :, got 1", "jsonata"),
        ({"form": "JSONATA", "value": "a b"}, "$.value", "at line 1, column 3: syntax error", "jsonata"),
        ({"form": "JSONATA", "value": "$match(a, /b(/)"}, "$.value", "the expression is invalid", "jsonata"),
        ({"form": "JSONATA", "value": "~]"}, "$.value", "the expression is invalid: it cannot be read", "jsonata"),
        ({"form": "JSONATA", "value": "(" * 5000 + "1" + ")" * 5000}, "$.value", "nested too deep", "variables"),
        ({"form": "JSONATA", "value": "1+" * 60_000 + "1"}, "$.value", "the maximum is 100,000", "shorter"),
        ({"form": "Template"}, "$.form", "there is no form 'Template'", "Did you mean TEMPLATE?"),
        ({"form": "JSON_PATH"}, "$.form", "there is no form 'JSON_PATH'", "Did you mean JSONPATH?"),
        (
            {"form": "xyz"},
            "$.form",
            "there is no form 'xyz'",
            "Use ORIGINAL, CONSTANT, JSONPATH, TEMPLATE, FIELDS, JSONATA or SQL",
        ),
        ({"form": 5}, "$.form", "there is no form 5", "Use ORIGINAL"),
        ({"value": "$.data"}, "$", "has no form", "Write form:"),
        ({"template": "x"}, "$", "has no form", "Write form:"),
        ({"form": "ORIGINAL", "vlaue": 1}, "$.vlaue", "has no field vlaue", "Did you mean value?"),
        ({"form": "ORIGINAL", "a b": 1}, '$["a b"]', "has no field a b", "form, value, template, steps, missing"),
        ({"form": "ORIGINAL", 'a"b': 1}, '$["a\\"b"]', "has no field", "form, value, template, steps, missing"),
        ({"form": "ORIGINAL", 1: 1}, '$["1"]', "has no field 1", "form, value, template, steps, missing"),
        ({"form": "ORIGINAL", "missing": "skip"}, "$.missing", "missing is 'skip'", "missing: error"),
        ({"form": "ORIGINAL", "missing": False}, "$.missing", "missing is False", "missing: error"),
        (
            {"form": "ORIGINAL", "value": "x"},
            "$.value",
            "ORIGINAL form does not accept value",
            "CONSTANT, JSONPATH, TEMPLATE, JSONATA or SQL",
        ),
        (
            {"form": "ORIGINAL", "template": "x"},
            "$.template",
            "ORIGINAL form does not accept template",
            "form: TEMPLATE",
        ),
        ({"form": "CONSTANT"}, "$", "CONSTANT form needs a value", "value:"),
        (
            {"form": "CONSTANT", "value": 1, "template": "x"},
            "$.template",
            "CONSTANT form does not accept template",
            "form: TEMPLATE",
        ),
        ({"form": "CONSTANT", "value": float("inf")}, "$.value", "not JSON", "quotes"),
        ({"form": "CONSTANT", "value": {"a": date(2026, 1, 1)}}, "$.value", "not JSON", "quotes"),
        ({"form": "JSONPATH"}, "$", "JSONPATH form needs a path", "$.data.name"),
        ({"form": "JSONPATH", "value": ["$.data"]}, "$.value", "JSONPATH form needs a path", "$.data.name"),
        ({"form": "JSONPATH", "value": "data.x"}, "$.value", "invalid at character 1", "$.data.name"),
        (
            {"form": "JSONPATH", "value": "$", "template": "x"},
            "$.template",
            "JSONPATH form does not accept template",
            "TEMPLATE",
        ),
        ({"form": "TEMPLATE"}, "$", "TEMPLATE form needs text", "${name}"),
        (
            {"form": "JSONPATH", "value": "$.data.items[*].id"},
            "$.value",
            "more than one value",
            "such as [0]; for all of them write form: JSONATA, such as value: data.items.id[].",
        ),
        (
            {"form": "JSONPATH", "value": "$.data..id"},
            "$.value",
            "more than one value",
            "such as [0]; for all of them write form: JSONATA.",
        ),
        (
            {"form": "TEMPLATE", "template": "${a}", "value": {"a": "$.data.*"}},
            "$.value.a",
            "more than one value",
            "JSONATA",
        ),
        (
            {"form": "FIELDS", "steps": [{"delete": "$.data.*"}]},
            "$.steps[0].delete.path",
            "more than one value",
            "JSONATA",
        ),
        ({"form": "JSONPATH", "value": "$.data[?(@.a)]"}, "$.value", "a filter leads", "form: JSONATA"),
        ({"form": "JSONPATH", "value": "$.data[1:2]"}, "$.value", "a slice leads", "form: JSONATA"),
        ({"form": "TEMPLATE", "template": ""}, "$.template", "TEMPLATE form needs text", "${name}"),
        ({"form": "TEMPLATE", "template": {"a": 1}}, "$.template", "TEMPLATE form needs text", "${name}"),
        ({"form": "TEMPLATE", "template": "x", "value": "$.data"}, "$.value", "mapping of names", "id: $.data.id"),
        (
            {"form": "TEMPLATE", "template": "x", "value": {"a b": 1}},
            '$.value["a b"]',
            "is not a valid name",
            "letters",
        ),
        ({"form": "TEMPLATE", "template": "x", "value": {5: 1}}, '$.value["5"]', "is not text", "quotes"),
        ({"form": "TEMPLATE", "template": "x", "value": {"eb.x": 1}}, '$.value["eb.x"]', "is reserved", "another name"),
        ({"form": "TEMPLATE", "template": "${a}", "value": {"a": "$.data."}}, "$.value.a", "character 7", "Remove"),
        ({"form": "TEMPLATE", "template": "${a}", "value": {"a": date(2026, 1, 1)}}, "$.value.a", "no JSON", "quotes"),
        ({"form": "TEMPLATE", "template": "<${}>"}, "$.template", "line 1, column 2 has no name", "${name}"),
        ({"form": "TEMPLATE", "template": '{"a": 1,}'}, "$.template", "not JSON", "Correct it"),
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
def test_an_error_is_reported_with_path_and_remedy(definition: Any, path: str, message: str, remedy: str) -> None:
    """One error, with its JSON path below the transform, what it is, what to write."""
    errors = transform_errors(definition)

    assert [error.path for error in errors] == [path]
    assert message in errors[0].message
    assert remedy in errors[0].remedy
    assert str(errors[0]).endswith((".", "?"))
    assert not errors[0].message.endswith(".")


def test_all_errors_are_reported_at_once() -> None:
    """Fields, names, paths and placeholders: one reading finds them all."""
    errors = transform_errors(
        {
            "form": "TEMPLATE",
            "missing": "skip",
            "stepps": [],
            "value": {"a": "$.data..x", "b c": 1, "d": float("nan")},
            "template": "${a} ${d} ${} ${e} ${f}",
        }
    )

    assert [error.path for error in errors] == [
        "$.stepps",
        "$.missing",
        "$.value.a",
        '$.value["b c"]',
        "$.value.d",
        "$.template",
        "$.template",
        "$.template",
    ]


def test_a_name_with_a_wrong_path_is_defined_all_the_same() -> None:
    """One error is reported once: the use of the name is not at fault."""
    errors = transform_errors({"form": "TEMPLATE", "value": {"a": "$.data..x"}, "template": "${a}"})

    assert [error.path for error in errors] == ["$.value.a"]


@pytest.mark.parametrize("foreign", ["<id>", "< id >", "{{id}}", "{{ id }}", "{id}", "%id%", "$id", "$(id)", "$${id}"])
@pytest.mark.parametrize("quote", ['"', ""])
def test_a_placeholder_of_another_language_is_named_with_the_right_one(foreign: str, quote: str) -> None:
    """A name whose value nothing inserts is an error, in quotes and outside of them; the remedy shows `${id}`."""
    template = '{"note": 1,\n "order": ' + quote + foreign + quote + "}"

    errors = transform_errors({"form": "TEMPLATE", "value": {"id": "$.data.id"}, "template": template})

    assert [error.path for error in errors] == ["$.template"]
    assert f"{foreign} at line 2, column {11 + len(quote)} is plain text and inserts no value" in str(errors[0])
    assert errors[0].remedy == f"Write ${{id}} instead of {foreign}."


def test_a_name_that_nothing_inserts_is_an_error() -> None:
    """Each unused name is reported at its own line, with what to write; so are other errors of the template."""
    value = {"id": "$.data.id", "at": "$.time", "used": "constant"}

    errors = transform_errors({"form": "TEMPLATE", "value": value, "template": "${used} ${user}"})

    assert [(error.path, error.message) for error in errors] == [
        ("$.template", "${user} at line 1, column 9 is not defined"),
        ("$.value.id", "the template does not use ${id}"),
        ("$.value.at", "the template does not use ${at}"),
    ]
    assert errors[1].remedy == "Write ${id} where its value belongs, or remove the name."


def test_a_bare_placeholder_of_another_language_without_value_is_named_too() -> None:
    """A template that is no JSON because of `<id>` gets the remedy though no name is defined."""
    [error] = transform_errors({"form": "TEMPLATE", "template": '{"id": <id>}'})

    assert "the template is not JSON" in error.message
    assert error.remedy.startswith("Write ${id} for a value that is inserted, not <id>")
