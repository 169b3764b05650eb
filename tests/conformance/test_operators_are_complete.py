"""Every operator has a section on the page, cases, and a strategy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from generative.pattern_strategies import STRATEGIES

from eventbridge.event.json_document import parse_document
from eventbridge.matching.pattern import OPERATORS, nodes

ROOT = Path(__file__).parents[2]
FEWEST_CASES = 15


def spelled(operator: str) -> str:
    """Return the name of an operator as files spell it."""
    return operator.strip("$").replace("-", "_")


def test_operators_are_all_classes_of_the_language() -> None:
    """Exactly the conditions of a leaf list, `$or` and `$not` are listed."""
    assert set(OPERATORS.values()) == {*get_args(nodes.Condition), nodes.Or, nodes.Not}


@pytest.mark.parametrize("operator", OPERATORS)
def test_operator_has_a_class_of_its_name(operator: str) -> None:
    """`anything-but` is AnythingBut."""
    assert OPERATORS[operator].__name__ == spelled(operator).replace("_", " ").title().replace(" ", "")


@pytest.mark.parametrize("operator", OPERATORS)
def test_operator_has_a_section_with_an_example(operator: str) -> None:
    """The page has a section with the operator's name, and an example in it uses the operator."""
    page = (ROOT / "docs" / "reference" / "patterns.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", page, re.M | re.S))

    assert f'"{operator}":' in "".join(re.findall(r"```json\n(.*?)```", sections.get(operator, ""), re.S))


@pytest.mark.parametrize("operator", OPERATORS)
def test_operator_has_enough_cases(operator: str) -> None:
    """The operator's case file has at least 15 cases of patterns that use it, both results among them."""
    text = (ROOT / "tests" / "conformance" / "cases" / f"{spelled(operator)}.json").read_text(encoding="utf-8")
    groups = parse_document(f'{{"groups":{text}}}')["groups"]
    results = [test["matches"] for group in groups for test in group["tests"]]  # type: ignore[union-attr,index,call-overload]

    assert len(results) >= FEWEST_CASES
    assert {True, False} == set(results)
    assert f'"{operator}":' in text


def test_every_operator_has_a_strategy() -> None:
    """Generated patterns hold every operator."""
    assert set(STRATEGIES) == set(OPERATORS)
