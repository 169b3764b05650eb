"""A program reuses parts of the previous one when rules change."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pyarrow as pa

from eventbridge.event.ids import delivery_id
from eventbridge.event.json_document import Number
from eventbridge.matching.scan.texts import padded_texts
from eventbridge.routing.program import KEPT_PROGRAMS, RouteProgram, route_program
from eventbridge.rules import Bus, Rule, RuleSet, Transform
from eventbridge.targets.file.fields import FileFields


def rule(name: str, pattern: dict[str, Any], value: Any = 1, template: str | None = None) -> Rule:
    """Return a rule with one target: a constant, or a template."""
    form: Any = "CONSTANT" if template is None else "TEMPLATE"
    transform = Transform(form=form, value=value, template=template)
    target = FileFields(name="file", path="out.jsonl", transform=transform)
    return Rule(name=name, bus="b", runner="b", pattern=pattern, targets={"file": target})


def test_rules_that_stayed_keep_pattern_and_program_and_others_get_their_own() -> None:
    """A rule may change its pattern, its transform, even the spelling of a number in it, or its place."""
    stays, goes = rule("stays", {"a": [1]}), rule("goes", {"a": [2]})
    before = [stays, goes, rule("pattern", {"a": [3]}), rule("spelling", {"a": [4]}, Number("1"))]
    after = [rule("spelling", {"a": [4]}, Number("1.0")), rule("comes", {"a": [2]}), rule("pattern", {"a": [5]}), stays]
    first = RouteProgram(before, "b")
    second = RouteProgram(after, "b", first)
    texts = {route.rule.name: route.program.operations[0].text for route in second.routes}

    assert second.patterns == RouteProgram(after, "b").patterns
    assert second.patterns[3] is first.patterns[0]
    assert [route.program for route in second.routes] == [route.program for route in RouteProgram(after, "b").routes]
    assert texts["spelling"] == b"1.0"
    assert second.matcher.match(pa.array([f'{{"a": {n}}}' for n in (1, 2, 3, 4, 5)])).rules.tolist() == [3, 1, 0, 2]


def test_a_program_of_another_bus_is_not_taken_over() -> None:
    """A program of another bus is not reused, because a template may contain the bus."""
    named = rule("named", {"a": [1]}, {}, "from ${eb.bus}")
    second = RouteProgram([named], "other", RouteProgram([named], "b"))

    assert second.routes[0].program == RouteProgram([named], "other").routes[0].program
    assert second.routes[0].program != RouteProgram([named], "b").routes[0].program


def rule_set(bus: str, *rules: Rule) -> RuleSet:
    """Return a rule set of one bus."""
    return RuleSet(buses={bus: Bus(name=bus)}, rules={each.name: each for each in rules})


def test_replays_share_a_program_and_have_delivery_ids_of_their_own() -> None:
    """A replay compiles nothing, and its delivery ids are those of `eventbridge.event.ids`."""
    rules = rule_set("b", rule("one", {"a": [1]}), rule("two", {"a": [2]}))
    program = route_program("replayed", rules, "b")
    source, event_id = padded_texts(pa.chunked_array([["/s"]])), padded_texts(pa.chunked_array([["e"]]))
    both, none = np.array([0, 1]), np.zeros(2, np.int64)

    for replay in ("", "r1", "r2", "r3", "", "r1"):
        assert route_program("replayed", rules, "b") is program
        found = [each.tobytes() for each in program.ids_of(replay).compute(source, event_id, none, both)]
        assert found == [delivery_id("b", "/s", "e", name, "file", replay) for name in ("one", "two")]


def test_a_rule_set_in_which_no_pattern_changed_keeps_its_matcher() -> None:
    """Another transform, even another order of the same patterns' rules, is no reason to compile, or is one."""
    one, two = rule("one", {"a": [1]}), rule("two", {"a": [2]})
    first = RouteProgram([one, two], "b")

    assert RouteProgram([one, rule("two", {"a": [2]}, value=3)], "b", first).matcher is first.matcher
    assert RouteProgram([two, one], "b", first).matcher is not first.matcher


def test_a_process_keeps_as_many_programs_as_it_needs() -> None:
    """The last requested programs are kept and replaced ones are freed; a canary does not evict the first program.

    They are freed by reference counts alone, because a worker's garbage collector ignores them (gc.freeze).
    """
    sets = [rule_set("b", rule("one", {"a": [number]})) for number in range(5)]
    canary = rule_set("canary", rule("sings", {"a": [0]}))
    last = route_program("kept-4", sets[4], "b")
    others = [weakref.ref(route_program(f"kept-{number}", sets[number], "b")) for number in range(4)]

    assert route_program("kept-4", sets[4], "b") is not last
    last = route_program("kept-4", sets[4], "b")
    route_program("kept-canary", canary, "canary")
    assert route_program("kept-4", sets[4], "b") is last
    assert [other() for other in others] == [None] * 4
    assert KEPT_PROGRAMS == 2


def test_a_changed_rule_set_reuses_only_programs_of_its_own_bus() -> None:
    """After a canary, the next change of the rules still reuses the programs of its own bus."""
    before, after = rule("one", {"a": [1]}), rule("one", {"a": [1]}, value=2)
    first = route_program("changed-1", rule_set("b", before), "b")
    route_program("changed-canary", rule_set("canary", rule("sings", {"a": [0]})), "canary")

    assert route_program("changed-2", rule_set("b", after), "b").matcher is first.matcher
