"""What a program takes over from the one before it when rules change."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from eventbridge.document import Number
from eventbridge.rule import Rule, Target, Transform
from eventbridge.stages.route_program import RouteProgram


def rule(name: str, pattern: dict[str, Any], value: Any = 1, template: str | None = None) -> Rule:
    """Return a rule with one target: a constant, or a template."""
    form: Any = "CONSTANT" if template is None else "TEMPLATE"
    transform = Transform(form=form, value=value, template=template)
    target = Target(name="file", type="file", path="out.jsonl", transform=transform)
    return Rule(name=name, bus="b", runner="b", pattern=pattern, targets={"file": target})


def test_rules_that_stayed_keep_pattern_and_program_and_others_get_their_own() -> None:
    """A rule may change its pattern, its transform, even the spelling of a number in it, or its place."""
    stays, goes = rule("stays", {"a": [1]}), rule("goes", {"a": [2]})
    before = [stays, goes, rule("pattern", {"a": [3]}), rule("spelling", {"a": [4]}, Number("1"))]
    after = [rule("spelling", {"a": [4]}, Number("1.0")), rule("comes", {"a": [2]}), rule("pattern", {"a": [5]}), stays]
    first = RouteProgram(before, "b", "")
    second = RouteProgram(after, "b", "", first)
    texts = {route.rule.name: route.program.operations[0].text for route in second.routes}

    assert second.patterns == RouteProgram(after, "b", "").patterns
    assert second.patterns[3] is first.patterns[0]
    assert [route.program for route in second.routes] == [
        route.program for route in RouteProgram(after, "b", "").routes
    ]
    assert texts["spelling"] == b"1.0"
    assert second.matcher.match(pa.array([f'{{"a": {n}}}' for n in (1, 2, 3, 4, 5)])).rules.tolist() == [3, 1, 0, 2]


def test_a_program_of_another_bus_is_not_taken_over() -> None:
    """A template may name its bus."""
    named = rule("named", {"a": [1]}, {}, "from ${eb.bus}")
    second = RouteProgram([named], "other", "", RouteProgram([named], "b", ""))

    assert second.routes[0].program == RouteProgram([named], "other", "").routes[0].program
    assert second.routes[0].program != RouteProgram([named], "b", "").routes[0].program
