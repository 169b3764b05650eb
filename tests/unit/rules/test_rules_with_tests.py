"""`tests` of a rule: the reference matcher and the reference transforms run them; what fails is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventbridge.errors import RuleFileError
from eventbridge.rules.load import load_rules
from eventbridge.rules.tests import failures

RULES = """\
buses: {orders: {source: {type: embedded}}}
rules:
  big-orders:
    bus: orders
    pattern: {type: [order.placed], data: {amount: [{numeric: [">", 1000]}]}}
    %s
    targets:
      crm: {type: file, path: /x, transform: {form: TEMPLATE, value: {id: $.data.id}, template: '{"order": "${id}"}'}}
      text: {type: file, path: /y, transform: {form: TEMPLATE, value: {id: $.data.id}, template: 'order ${id}'}}
      whole: {type: file, path: /z}
      sql: {type: file, path: /s, transform: {form: SQL, value: "data:id::string"}}
    tests:
      - event: {type: order.placed, data: {id: A1, amount: 1000.01}}
        matches: %s
        outputs:
          crm: {order: %s}
          text: order %s
          whole: {specversion: "1.0", id: test, source: /test, type: order.placed, data: {id: A1, amount: 1000.01}}
      - event: {type: order.placed, data: {id: A2, amount: %s}}
        matches: false
"""


def said(folder: Path, *filled_in: str) -> list[str]:
    """Return the errors of the file with these words, without its name."""
    file = folder / "r.yaml"
    file.write_text(RULES % filled_in)
    try:
        load_rules(folder, tried_by=failures)
    except RuleFileError as error:
        return [str(one).replace(f"{file}:", "") for one in error.errors]
    return []


def test_a_rule_that_does_what_its_tests_say_has_no_error(tmp_path: Path) -> None:
    """Of JSON outputs the values count and not the spelling; of others the text."""
    assert said(tmp_path, "", "true", "A1", "A1", "1000") == []


@pytest.mark.parametrize(
    ("filled_in", "errors"),
    [
        (
            ("", "true", "A2", "A1", "1000"),
            [
                '16:16: $.rules.big-orders.tests[0].outputs.crm: target crm gets {"order": "A1"}, not {"order":"A2"}. '
                "Correct the transform, or what the test expects."
            ],
        ),
        (
            ("", "true", "A1", "A3", "1000"),
            [
                '17:17: $.rules.big-orders.tests[0].outputs.text: target text gets order A1, not "order A3". '
                "Correct the transform, or what the test expects."
            ],
        ),
        (
            ("", "true", "A1", "A1", "2000"),
            [
                "20:18: $.rules.big-orders.tests[1].matches: the pattern matches this event. "
                "Correct the pattern, or write matches: true."
            ],
        ),
    ],
)
def test_a_failing_test_of_a_rule_is_an_error_with_its_place(
    tmp_path: Path, filled_in: tuple[str, ...], errors: list[str]
) -> None:
    """It says what the rule does instead."""
    assert said(tmp_path, *filled_in) == errors


def test_an_event_that_does_not_match_is_explained_by_the_condition(tmp_path: Path) -> None:
    """The error has the value seen; what targets would get is not shown then."""
    (one,) = said(tmp_path, "enabled: true", "true\n      - event: {type: order.paid}", "A1", "A1", "1000")

    assert "the pattern does not match this event: $.type: " in one
    assert "order.paid" in one


def test_where_may_turn_down_what_the_pattern_lets_through(tmp_path: Path) -> None:
    """Only Spark can evaluate it: a test that expects no match is not held against the pattern."""
    assert said(tmp_path, "where: data:amount::int < 5000", "true", "A1", "A1", "6000") == []


def test_tests_are_no_part_of_the_rule(tmp_path: Path) -> None:
    """A change of them is no new version, and a failing one does not stop a runner."""
    said(tmp_path, "", "true", "A1", "A1", "1000")
    before = load_rules(tmp_path).rules["big-orders"]
    assert said(tmp_path, "", "true", "A9", "A1", "1000") != []

    assert load_rules(tmp_path).rules["big-orders"].version == before.version
