"""`-o table|json|yaml` on every command that prints data; `--json` is short for `-o json`."""

from __future__ import annotations

import io
import json
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML
from typer.main import get_command

from eventbridge.cli import app
from eventbridge.cli.output import _yaml_lines, show_document, show_line_document
from eventbridge.event.json_document import Number, parse_value

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8"), max_size=30),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(VALUES | st.text("aeflnorstuyYN.~-_/ :#0123", max_size=12))
def test_yaml_is_read_as_the_value_that_was_written(value: Any) -> None:
    """Words that YAML reads as a boolean, null, number or date are quoted."""
    assert YAML(typ="safe", pure=True).load(io.StringIO("\n".join(_yaml_lines(value)) + "\n")) == value


def test_each_format_shows_the_same_rule(eventbridge: Callable[..., Any]) -> None:
    """A rule as JSON and as YAML is one document; numbers keep their digits."""
    plain, short, yaml = (
        eventbridge("rules", "show", "big-orders", *each) for each in ([], ["--json"], ["-o", "yaml"])
    )

    assert plain.out == short.out == eventbridge("rules", "show", "big-orders", "-o", "json").out
    assert YAML(typ="safe").load(yaml.out) == json.loads(plain.out)


def test_the_table_is_the_default(eventbridge: Callable[..., Any]) -> None:
    """`-o table` says what is printed anyway, and a document before does not change the next command."""
    eventbridge("rules", "list", "-o", "yaml")

    assert eventbridge("rules", "list", "-o", "table").out == eventbridge("rules", "list").out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-o", "xml"), "'xml' is not a format. Formats: table, json, yaml"),
        (("--json", "-o", "yaml"), "Leave --json or -o yaml out"),
    ],
)
def test_an_impossible_format_is_an_error(options: tuple[str, ...], said: str, eventbridge: Callable[..., Any]) -> None:
    """Exit code 2, with the formats."""
    result = eventbridge("rules", "list", *options)

    assert result.code == 2
    assert said in result.err


@pytest.mark.parametrize("words", [("-o", "json"), ("-ojson",), ("--output=json",), ("-o", "yaml"), ("--json",)])
def test_an_error_is_a_document_where_a_document_was_asked_for(
    words: tuple[str, ...], eventbridge: Callable[..., Any]
) -> None:
    """On standard error, as JSON."""
    result = eventbridge("rules", "show", "nope", *words)

    assert (result.code, result.out) == (2, "")
    assert "not_found" in json.loads(result.err.splitlines()[-1]).__repr__()


def test_every_command_that_prints_data_takes_both_options() -> None:
    """Only `serve`, `mcp`, and `rules schema`, which is JSON anyway, take neither."""
    without = [words for words, options in _options(get_command(app)) if not {"-o", "--output", "--json"} <= options]

    assert without == ["mcp", "rules schema", "serve"]


def _options(group: Any, before: str = "") -> list[tuple[str, set[str]]]:
    found = []
    for name, command in sorted(group.commands.items()):
        words = f"{before} {name}".strip()
        if hasattr(command, "commands"):
            found += _options(command, words)
        else:
            found.append((words, {option for each in command.params for option in each.opts}))
    return found


TEXTS = ["plain", "caf\u00e9", "a\x7fb\x9bc", "\u202egpj", "\U0001f600", "\U000e0041tag", "\u2028", "\ud800", "\xad"]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
@pytest.mark.parametrize("show", [show_document, show_line_document])
def test_json_stays_json_on_every_terminal(
    show: Callable[[Any], None], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the encoding lacks is escaped as JSON does, and so is each character that a terminal would act on."""
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding, errors="backslashreplace")
    monkeypatch.setattr("sys.stdout", stream)
    value = {"texts": TEXTS} | dict.fromkeys(TEXTS, 1)

    show(value)

    text = written.getvalue().decode(encoding)
    assert json.loads(text) == value
    assert {each for each in text if each != "\n" and unicodedata.category(each) in ("Cc", "Cf", "Zl", "Zp")} == set()
    assert ("\u00e9" in text) == (encoding == "utf-8")


@pytest.mark.parametrize("number", ["1e3", "1E+3", "-1.5e-7", "12", "1.0", "1e400"])
def test_a_number_is_a_number_to_every_reader_of_yaml(number: str) -> None:
    """YAML 1.1 takes 1e3 for a string; the digits stay."""
    (line,) = _yaml_lines(parse_value(number.encode()))

    assert yaml.safe_load(line) == float(number)
    assert Number(line) == Number(number)
