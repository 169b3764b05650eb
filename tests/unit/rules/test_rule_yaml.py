"""The traps of YAML: each is reported with its location, none is guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventbridge.errors import RuleError, RuleFileError
from eventbridge.rules.load import load_rules
from eventbridge.rules.yaml_tree import read_yaml

HEAD = b"""\
buses:
  b: {source: {type: embedded}}
rules:
  r:
    bus: b
    targets: {t: {type: file, path: /x}}
"""


def errors(tmp_path: Path, content: bytes) -> list[str]:
    """Return the errors in one file, without its name."""
    file = tmp_path / "r.yaml"
    file.write_bytes(content)
    with pytest.raises(RuleFileError) as caught:
        load_rules(tmp_path)
    return [str(error).removeprefix(f"{file}:") for error in caught.value.errors]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", ["1:1: $: the file is empty. Write buses: or rules:, or remove the file."]),
        (b"# only a comment\n", ["1:1: $: the file is empty. Write buses: or rules:, or remove the file."]),
        (
            b"- a\n- b\n",
            ["1:1: $: a rule file must be a mapping of fields, not a list. Write fields as name: value below it."],
        ),
        (
            b"just text\n",
            ["1:1: $: a rule file must be a mapping of fields, not text. Write fields as name: value below it."],
        ),
        (
            b"rules:\n\tr: {}\n",
            [
                "2:1: $: invalid YAML: found character '\\t' that cannot start any token. "
                "YAML is indented with spaces: replace the tab."
            ],
        ),
        (
            b"rules:\n  r: a: b\n",
            [
                "2:7: $: invalid YAML: mapping values are not allowed here. "
                "Put a value that contains ': ' in quotes, and check the indentation."
            ],
        ),
        (
            b"rules:\n  - a\n b: 1\n",
            [
                "3:2: $: invalid YAML: expected <block end>, but found '<block mapping start>', "
                "while parsing a block mapping that begins on line 1. "
                "Give all fields of a mapping the same indentation."
            ],
        ),
        (
            b"rules: 'r\n",
            [
                "2:1: $: invalid YAML: found unexpected end of stream, while scanning a quoted scalar "
                "that begins on line 1. Close the quotes that were opened."
            ],
        ),
        (
            b"rules: {r: {\n",
            [
                "2:1: $: invalid YAML: expected the node content, but found '<stream end>'. "
                "Close the bracket that was opened."
            ],
        ),
        (
            b"rules: @r\n",
            ["1:8: $: invalid YAML: found character '@' that cannot start any token. Put the value in quotes."],
        ),
        (
            b'rules: "\\d"\n',
            [
                "1:10: $: invalid YAML: found unknown escape character 'd', while scanning a double-quoted scalar "
                "that begins on line 1. Use single quotes, in which a backslash has no special meaning, "
                "or write the backslash twice."
            ],
        ),
        (
            b'rules: "\\Uffffffff"\n',
            [
                "1:1: $: a double-quoted string contains an invalid escape. "
                "Check \\x, \\u and \\U, or use single quotes."
            ],
        ),
        (b"# caf\xe9\nrules: {}\n", ["1:6: $: byte 0xe9 is not UTF-8. Save the file as UTF-8."]),
        (b"\xef\xbb\xbf# caf\xe9\nrules: {}\n", ["1:6: $: byte 0xe9 is not UTF-8. Save the file as UTF-8."]),
        (
            b"rules:\n  r: \x07\n",
            [
                "2:6: $: the character U+0007 is not allowed in YAML. "
                'Remove it, or escape it within double quotes ("\\u....").'
            ],
        ),
        (
            "rules:\n  r: {description: one\u2028two}\n".encode(),
            [
                "2:23: $: the character U+2028 is a line break to some YAML parsers and text to others. "
                'Remove it, or escape it within double quotes ("\\u....").'
            ],
        ),
        (
            b"%YAML 1.1\n---\nrules: {}\n",
            ["2:1: $: the file declares a YAML version other than 1.2. Remove the %YAML line."],
        ),
        (
            b"rules: {}\n---\nrules: {}\n",
            [
                "2:1: $: the file contains a second document. Remove the --- line, "
                "or move the second document to a file of its own."
            ],
        ),
        (b"rules: " + b"[" * 5000 + b"]" * 5000, ["1:108: $: values are nested deeper than 100. Flatten them."]),
    ],
)  # fmt: skip
def test_file_that_is_no_mapping_in_yaml(tmp_path: Path, content: bytes, expected: list[str]) -> None:
    """A file that cannot be parsed to its end gets one error, at the location where parsing ended."""
    assert expected == errors(tmp_path, content)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            b"    pattern: {type: [yes]}",
            "7:22: $.rules.r.pattern.type[0]: yes without quotes is a boolean to some YAML parsers and text to "
            'others. Write true, or "yes" if you mean the text.',
        ),
        (
            b"    pattern: {data: {country: [NO]}}",
            "7:32: $.rules.r.pattern.data.country[0]: NO without quotes is a boolean to some YAML parsers "
            'and text to others. Write false, or "NO" if you mean the text.',
        ),
        (
            b"    pattern: {data: {on: [a]}}",
            "7:22: $.rules.r.pattern.data: some YAML parsers do not read the key 'on' as a string. "
            'Put it in quotes: "on".',
        ),
        (
            b"    pattern: {data: {404: [a]}}",
            "7:22: $.rules.r.pattern.data: some YAML parsers do not read the key '404' as a string. "
            'Put it in quotes: "404".',
        ),
        (
            b"    pattern: {data: {true: [a]}}",
            "7:22: $.rules.r.pattern.data: some YAML parsers do not read the key 'true' as a string. "
            'Put it in quotes: "true".',
        ),
        (
            b"    pattern: {data: {? [a] : [b]}}",
            "7:24: $.rules.r.pattern.data: a key is a mapping or a list. Write the key as a string.",
        ),
        (
            b"    pattern: {data: {a: [0x1F]}}",
            "7:26: $.rules.r.pattern.data.a[0]: 0x1F without quotes is a number to some YAML parsers, "
            "but is not written as a JSON number. "
            'Write it in plain decimal digits such as 31 or 0.5, or "0x1F" if you mean the text.',
        ),
        (
            b"    pattern: {data: {a: [007]}}",
            "7:26: $.rules.r.pattern.data.a[0]: 007 without quotes is a number to some YAML parsers, "
            "but is not written as a JSON number. "
            'Write it in plain decimal digits such as 31 or 0.5, or "007" if you mean the text.',
        ),
        (
            b"    pattern: {data: {a: [.inf]}}",
            "7:26: $.rules.r.pattern.data.a[0]: .inf without quotes is a number to some YAML parsers, "
            "but is not written as a JSON number. "
            'Write it in plain decimal digits such as 31 or 0.5, or ".inf" if you mean the text.',
        ),
        (
            b"    pattern: {data: {a: [1_000]}}",
            "7:26: $.rules.r.pattern.data.a[0]: 1_000 without quotes is a number to some YAML parsers, "
            "but is not written as a JSON number. "
            'Write it in plain decimal digits such as 31 or 0.5, or "1_000" if you mean the text.',
        ),
        (
            b"    pattern: &p {type: [a]}",
            "7:14: $.rules.r.pattern: the anchor &p is not supported. Write values out where they are used.",
        ),
        (b"    pattern: *p", "7:14: $.rules.r.pattern: the alias *p is not supported. Write the value out."),
        (
            b"    pattern: {type: [!!str a]}",
            "7:22: $.rules.r.pattern.type[0]: the tag tag:yaml.org,2002:str is not supported. "
            "Remove it. To mark a value as text, put it in quotes.",
        ),
        (
            b"    pattern: {<<: {}, type: [a]}",
            "7:15: $.rules.r.pattern: merging with << is not supported. Write the fields out.",
        ),
        (
            b"    pattern: {type: [a], type: [b]}",
            "7:26: $.rules.r.pattern.type: duplicate key 'type' in this mapping, first used at FILE:7:15. "
            "Remove one of them, or merge the two.",
        ),
        (
            b'    pattern: {type: ["\\ud800"]}',
            "7:22: $.rules.r.pattern.type[0]: the text contains half of a surrogate pair. "
            "Write the character itself, or its escape \\U0001....",
        ),
    ],
)
def test_value_that_readers_of_yaml_disagree_about(tmp_path: Path, line: bytes, expected: str) -> None:
    """Each trap is one error, with no others as its consequence."""
    assert [expected.replace("FILE", str(tmp_path / "r.yaml"))] == errors(tmp_path, HEAD + line + b"\n")


def test_control_characters_of_a_key_are_escaped_in_its_error(tmp_path: Path) -> None:
    """A line break and an escape sequence in a key neither break the line of the error nor reach the terminal."""
    (error,) = errors(tmp_path, HEAD + b'    pattern: {"a\\n\\e[31m": [yes]}\n')

    assert "$.rules.r.pattern['a\\n\\x1b[31m'][0]: yes without quotes" in error


@pytest.mark.parametrize("word", ["yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF"])
def test_word_that_is_a_boolean_to_some(tmp_path: Path, word: str) -> None:
    """YAML 1.1's words for true and false are neither guessed as such nor as text."""
    said = errors(tmp_path, HEAD + f"    pattern: {{type: [{word}]}}\n".encode())

    start = f"7:22: $.rules.r.pattern.type[0]: {word} without quotes is a boolean to some YAML parsers"
    assert [start] == [text[: len(start)] for text in said]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (b"2013-01-01", '"2013-01-01"'),
        (b"12:30:45", '"12:30:45"'),
        (b"y", '"y"'),
        (b"'yes'", '"yes"'),
        (b"'007'", '"007"'),
        (b"null", "null"),
        (b"~", "null"),
        (b"True", "true"),
        (b"1e3", "1e3"),
        (b"-0.10", "-0.10"),
        (b"9007199254740993", "9007199254740993"),
        (b'"\\U0001F6EB"', '"\U0001f6eb"'),
        ("é".encode(), '"é"'),
    ],
)
def test_value_that_has_one_meaning(tmp_path: Path, written: bytes, value: str) -> None:
    """Dates and times are text as in JSON, numbers keep every digit as it was written."""
    (tmp_path / "r.yaml").write_bytes(HEAD + b"    pattern: {data: {a: [" + written + b"]}}\n")

    assert f'"pattern":{{"data":{{"a":[{value}]}}}}' in load_rules(tmp_path).to_json()


_OPEN = "Close the quotes opened on line 1: they end at the quote before this position."
_AFTER = "Something follows the closing quote: put the whole value in quotes, or escape the quote within it."


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ('a: "b\nc: ["d"]\n', _OPEN),
        ("a: 'b\n\nc: 'd'\n", _OPEN),
        ('a: {b: "c}\nd: {e: "f"}\n', _OPEN),
        ('a: ["b]\nc: {d: "e", f: 1}\n', _OPEN),
        ('a: "b\n  c"\nd: "e"f\n', _AFTER),
        ('a: ["b"c]\n', _AFTER),
        ("a: 'it's'\n", _AFTER),
        ("a: [b, c]d\n", "Give all fields of a mapping the same indentation."),
    ],
)
def test_quotes_that_are_not_closed_are_named_with_their_line(text: str, remedy: str) -> None:
    """They end at the next quote, often lines below, and what follows there is no error of indentation."""
    found: list[RuleError] = []
    read_yaml(text.encode(), "r.yaml", found)

    assert [str(each).endswith(remedy) for each in found] == [True], [str(each) for each in found]
