"""Templates as they are written: which are JSON, what their placeholders are, what is wrong with them."""

from __future__ import annotations

import pytest

from eventbridge.transform.template import Placeholder, parse_template


def parts(text: str) -> list[str | tuple[str, str, str | None]]:
    """Return literals as they are and placeholders as (name, context, default); there must be no error."""
    template, errors = parse_template(text)
    assert errors == []
    return [part if isinstance(part, str) else (part.name, part.context, part.default) for part in template.parts]


@pytest.mark.parametrize(
    "text",
    [
        '{"a": ${x}}',
        '{"a": "${x}"}',
        '{"a": "b ${x} c ${y}", "${z}": [${x}, ${y}]}',
        "\n [ ${x} ] \t",
        "${x}",
        ' "${x}" ',
        '"text"',
        "5",
        "-0.5e10",
        "null",
        '{"a": "\\"${x}\\\\"}',
        '{"a": "$${x}"}',
        '{"a": "\\ud800"}',
        '{"a": "${x:-say \\"hi\\"}"}',
        '{"a": ${x:-"b"}}',
        '{"a": ${x:-b c}}',
        '{"a": "${x:-{b\\}}"}',
        '{"n": 1' + "0" * 5_000 + "}",
        "[" * 200 + "]" * 200,
    ],
)
def test_a_template_that_is_json(text: str) -> None:
    """JSON text with placeholders as values or within strings is a JSON template."""
    template, errors = parse_template(text)

    assert (template.is_json, errors) == (True, [])


@pytest.mark.parametrize(
    "text",
    [
        "Hello ${x}",
        "${x} ${y}",
        "${x}${y}",
        "-${x}",
        "1${x}",
        "[${level}] ${message}",
        "{${x}: 1}",
        "{${x}}",
        "NaN",
        "01",
        "'text'",
        "$${x}",
        '"a" "b"',
        "\ufeff1",
        "\N{NO-BREAK SPACE}1",
        '{"a": 1} and more',
        'He said "${x}',
        '"line\nbreak"',
        '"${x:-"}"',
        '"${x:-a\nb}"',
        '"${x:-\\u00}"',
    ],
)
def test_a_template_that_is_text(text: str) -> None:
    """Whatever is not JSON, as strictly as RFC 8259 has it, is text."""
    template, errors = parse_template(text)

    assert (template.is_json, errors) == (False, [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a ${x} b", ["a ", ("x", "text", None), " b"]),
        ("${x}${y} ", [("x", "text", None), ("y", "text", None), " "]),
        ('{"a": ${x}}', ['{"a": ', ("x", "value", None), "}"]),
        ('{"a": "<${x}>"}', ['{"a": "<', ("x", "string", None), '>"}']),
        ('{"\\"": ${x}}', ['{"\\"": ', ("x", "value", None), "}"]),
        ('["\\\\", ${x}]', ['["\\\\", ', ("x", "value", None), "]"]),
        ("a $ b $x $$ {y} $$x", ["a $ b $x $$ {y} $$x"]),
        ("$${x}", ["${", "x}"]),
        ("$$${x} ", ["$${", "x} "]),
        ("$$$${x} ", ["$$${", "x} "]),
        ("${a}$${b}${c}", [("a", "text", None), "${", "b}", ("c", "text", None)]),
        ("${x:-y}.", [("x", "text", "y"), "."]),
        ("${x:-}.", [("x", "text", ""), "."]),
        ("${x:-a:-b}.", [("x", "text", "a:-b"), "."]),
        ("${x:-${y}.", [("x", "text", "${y"), "."]),
        ("${x:-{y\\}}.", [("x", "text", "{y}"), "."]),
        ("${x:-a\\b\\\\}.", [("x", "text", "a\\b\\"), "."]),
        ('"${x:-a \\"b\\" \\}\\\\}"', ['"', ("x", "string", 'a \\"b\\" }\\\\'), '"']),
        ('[${x:-{"a": [1, "\\}"]\\}}]', ["[", ("x", "value", '{"a": [1, "}"]}'), "]"]),
        ("[${x:-}]", ["[", ("x", "value", '""'), "]"]),
        ('[${x:-a"b\\\\}]', ["[", ("x", "value", '"a\\"b\\\\"'), "]"]),
    ],
)
def test_literals_and_placeholders(text: str, expected: list[object]) -> None:
    """What is literal, what a placeholder, where it stands, and what its default puts into the output."""
    assert parts(text) == expected


def test_names_may_have_letters_digits_and_three_signs() -> None:
    """Letters of any script, digits, `_`, `.` and `-`."""
    template, _ = parse_template("${eb.rule} ${a-b_c.d9} ${größe} ${9}")

    assert [placeholder.name for placeholder in template.placeholders()] == ["eb.rule", "a-b_c.d9", "größe", "9"]


def test_a_default_outside_a_string_is_json_if_it_can_be() -> None:
    """A default that is JSON goes in as that, any other as a string."""
    template, _ = parse_template('[${x:-0}, ${x:-null}, ${x:-"q"}, ${x:-01234}, ${x:-unknown}, ${x:-NaN}]')
    defaults = [placeholder.default for placeholder in template.placeholders()]

    assert defaults == ["0", "null", '"q"', '"01234"', '"unknown"', '"NaN"']


def test_an_escape_and_a_real_placeholder_differ() -> None:
    """`$${x}` stays as `${x}` in the output and asks for no name."""
    template, errors = parse_template('{"a": "$${x} ${x}"}')

    assert errors == []
    assert [placeholder.name for placeholder in template.placeholders()] == ["x"]


def test_a_placeholder_knows_where_it_stands() -> None:
    """Line and column are those of the template, from 1."""
    template, _ = parse_template('{\n  "a": "$${x}${y}",\n\n "b": ${z}}')

    assert [placeholder.at for placeholder in template.placeholders()] == ["line 2, column 14", "line 4, column 7"]


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("a ${x", "at line 1, column 3 is not closed", "${name}"),
        ("a\nb ${}", "at line 2, column 3 has no name", "${name}"),
        ("${:-x}", "at line 1, column 1 has no name", "${name}"),
        ("${$.data.x}", r"invalid name '\$\.data\.x'", "a path belongs under value"),
        ("${ x }", "invalid name ' x '", "letters, digits"),
        ("${a b}", "invalid name 'a b'", "letters, digits"),
        ("${x-}${x:y}", "invalid name 'x:y'", "letters, digits"),
        ("${-x}", "invalid name '-x'", "letters, digits"),
        ("${a{b}", "at line 1, column 1 cannot be read", "${name:-default}"),
        ('${"x"}', "at line 1, column 1 cannot be read", "${name:-default}"),
        ("${x:-a\\}", "at line 1, column 1 cannot be read", "${name:-default}"),
        ('{"a": 1,}', "not JSON: .*line 1, column 8", "begin it with something else"),
        ('{"a": ${x} "b": "${y:-12345}"}', "not JSON: .*line 1, column 12", "begin it with something else"),
        ('{"a": "$${x}",\n "b": ${x:-1} 2}', "not JSON: .*line 2, column 15", "begin it with something else"),
        ('{"a": "${x}",}', "not JSON: .*line 1, column 13", "begin it with something else"),
        ('{"a": "$${x}",}', "not JSON: .*line 1, column 14", "begin it with something else"),
        ('{"a": NaN}', "not JSON: NaN", "begin it with something else"),
        ('[{"a": ${x}},]', "not JSON: .*line 1, column 13", "begin it with something else"),
        ("half \ud800 ${x}", "half of a surrogate pair at line 1, column 6", "whole character"),
    ],
)
def test_a_wrong_template_is_located_with_a_remedy(text: str, message: str, remedy: str) -> None:
    """One error, with line and column in the template and what to write instead."""
    _, errors = parse_template(text, "$.template")

    assert len(errors) == 1
    assert errors[0].path == "$.template"
    assert errors[0].value == text
    with pytest.raises(type(errors[0]), match=message):
        raise errors[0]
    assert remedy in errors[0].remedy


def test_all_placeholders_that_are_wrong_are_reported() -> None:
    """A second error does not wait for the first to be corrected."""
    _, errors = parse_template("${} ${a b} ${ok} ${$.x} ${")

    assert [error.message.split(" at ")[1].split(" ")[3] for error in errors] == ["1", "5", "18", "25"]


def test_parts_are_never_empty() -> None:
    """There is no empty literal between two placeholders."""
    template, _ = parse_template("${x}${y}")

    assert all(isinstance(part, Placeholder) for part in template.parts)
