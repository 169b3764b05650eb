"""The model of rules: versions, frozen rule sets, runners, pools."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from eventbridge.errors import EventError, NewerFormatError
from eventbridge.event.json_document import Number
from eventbridge.rules import Bus, RetryPolicy, Rule, RuleSet, Transform
from eventbridge.rules.model import Runner, StreamingTimes
from eventbridge.sources.embedded.fields import EmbeddedFields
from eventbridge.targets.file.fields import FileFields
from eventbridge.targets.http.fields import HttpFields


def rule(name: str = "big-orders", **changes: object) -> Rule:
    """Return a rule with one file target."""
    fields: dict[str, object] = {
        "name": name,
        "bus": "orders",
        "runner": "orders",
        "pattern": {"type": ["order.placed"], "data": {"amount": [{"numeric": [">", 1000]}]}},
        "targets": {"log": FileFields(name="log", path="/srv/orders.jsonl")},
    }
    return Rule.model_validate(fields | changes)


def rule_set(*rules: Rule) -> RuleSet:
    """Return rules together with the buses they name."""
    return RuleSet(buses={r.bus: Bus(name=r.bus) for r in rules}, rules={r.name: r for r in rules})


def test_version_is_twelve_hex_digits_of_the_content() -> None:
    """The same content has the same version, and it is 12 hex digits."""
    version = rule().version

    assert (len(version), version == rule().version) == (12, True)
    int(version, 16)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"description": "x"},
        {"enabled": False},
        {"priority": "high"},
        {"concurrency": 2},
        {"pattern": {"type": ["order.placed"], "data": {"amount": [{"numeric": [">", 1001]}]}}},
        {"targets": {"log": FileFields(name="log", path="/srv/orders.jsonl", transform=Transform(missing="error"))}},
    ],
)
def test_version_changes_with_anything_in_the_rule(changes: dict[str, Any]) -> None:
    """Whatever is changed in a rule gives it another version."""
    assert rule().version != rule(**changes).version


def test_rules_of_owners_are_theirs_with_the_buses_that_they_need() -> None:
    """A rule that names no owner has its bus's; without either it has none, read from lines as from models."""
    buses = {"shop": Bus(name="shop", owner="a"), "open": Bus(name="open"), "own": Bus(name="own", owner="b")}
    pattern = {"data": {"owner": ["b"]}}  # is no owner
    given = [
        rule(name="inherits", bus="shop", pattern=pattern),
        rule(name="theirs", bus="shop", owner="b"),
        rule(name="guest", bus="open", owner="a"),
        rule(name="nobodys", bus="open", pattern=pattern),
    ]
    made = RuleSet(buses=buses, rules={each.name: each for each in given})

    for rules in (made, RuleSet.from_json(made.to_json())):
        assert rules.owners() == ["a", "b"]
        assert {name: rules.owner_of(each) for name, each in rules.rules.items()} == {
            "inherits": "a",
            "theirs": "b",
            "guest": "a",
            "nobodys": None,
        }
        seen = {owner: rules.owned_by([owner]) for owner in ("a", "b", "c")}
        assert {owner: (set(each.rules), set(each.buses)) for owner, each in seen.items()} == {
            "a": ({"inherits", "guest"}, {"shop", "open"}),
            "b": ({"theirs"}, {"shop", "own"}),
            "c": (set(), set()),
        }


def test_rule_set_survives_being_frozen() -> None:
    """What is written as JSON is read back equal, with equal hash, versions and numbers as they were written."""
    constant = Transform(form="CONSTANT", value={"z": Number("1.50"), "a": [None, Number("12345678901234567890.10")]})
    source = EmbeddedFields(topics=("a", "b"), partitions=2, start_at=datetime(2013, 1, 1, tzinfo=UTC))
    retry = RetryPolicy.from_name("BACKOFF_RETRY", 3600.0)
    target = HttpFields(name="t", url="https://x.example/", transform=constant, retry=retry, connection="c")
    original = RuleSet(
        buses={"orders": Bus(name="orders", source=source, retention_seconds=7200.0)},
        rules={"big-orders": rule(targets={"t": target}, pattern={"data": {"n": [Number("9007199254740993.0")]}})},
    )

    again = RuleSet.from_json(original.to_json())

    assert RuleSet.hash_of(original.to_json()) == original.hash
    assert original == again
    assert original.hash == again.hash
    assert original.to_json() == again.to_json()
    assert "9007199254740993.0" in again.to_json()
    assert '{"z":1.50,"a":[null,12345678901234567890.10]}' in again.to_json()


def test_of_a_changed_rule_set_only_what_changed_is_read() -> None:
    """A rule that was read is taken as it is where its line is the same."""
    stays, old, new = rule("stays"), rule("changes"), rule("changes", pattern={"type": ["x"]})
    before = RuleSet.from_json(rule_set(stays, old).to_json())
    assert before == rule_set(stays, old)  # which reads it
    after = RuleSet.from_json(rule_set(stays, new).to_json(), before)

    assert after == rule_set(stays, new)
    assert after.rules["stays"] is before.rules["stays"]


def test_a_rule_is_read_when_it_is_asked_for() -> None:
    """Reading one of 10,000 rules does not read the others: here they could not be."""
    frozen = rule_set(rule("a"), rule("b")).to_json()
    read = RuleSet.from_json(frozen.replace('"enabled":true', '"enabled":?', 1))

    assert list(read.rules) == ["a", "b"]
    assert read.rules["b"] == rule("b")
    with pytest.raises(EventError):
        read.rules["a"]


def test_rules_that_are_not_read_are_frozen_as_they_were() -> None:
    """The same text, of all rules or of a runner's, in whatever order they were put together."""
    one, two, other = rule("a"), rule("b"), rule("c", runner="own")
    read = RuleSet.from_json(rule_set(two, one, other).to_json())

    assert read.to_json() == rule_set(one, two, other).to_json()
    assert read.for_runner("orders").to_json() == rule_set(one, two).to_json()
    assert RuleSet.join([rule_set(other), rule_set(two, one)]).to_json() == read.to_json()
    assert RuleSet.from_lines(rule_set(two, one).to_lines()) == rule_set(two, one)
    assert list(RuleSet.from_lines(rule_set(two, one).to_lines()).rules) == ["b", "a"]


@pytest.mark.parametrize("rules", [(), ("a",), ("a", "b")])
def test_a_rule_set_of_one_line_is_read_too(rules: tuple[str, ...]) -> None:
    """The same JSON may have been frozen, or written, without a line for each rule."""
    frozen = rule_set(*(rule(name) for name in rules))

    assert RuleSet.from_json(frozen.to_json().replace("\n", "")) == RuleSet.from_json(frozen.to_json()) == frozen


def test_hash_does_not_depend_on_the_order_of_definition() -> None:
    """Files may be read in any order: rules, buses and targets are sorted by name."""
    one, two = rule("a"), rule("b", bus="z", runner="z")

    assert rule_set(one, two).hash == rule_set(two, one).hash


def test_order_of_keys_in_a_constant_is_content() -> None:
    """A constant's payload is written in the order of its keys, so the order is part of the version."""
    targets = [
        {"t": FileFields(name="t", path="/x", transform=Transform(form="CONSTANT", value=value))}
        for value in ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    ]

    assert rule(targets=targets[0]).version != rule(targets=targets[1]).version


def test_frozen_rule_set_keeps_the_versions_it_was_frozen_with() -> None:
    """A version that was recorded is kept, even if a later product would compute another."""
    text = rule_set(rule()).to_json().replace(rule().version, "0123456789ab")

    assert RuleSet.from_json(text).rules["big-orders"].version == "0123456789ab"


def test_models_cannot_be_changed() -> None:
    """A rule is a value."""
    with pytest.raises(ValidationError):
        setattr(rule(), "priority", "high")  # noqa: B010 - a type checker refuses the plain assignment


def test_pool_of_a_rule() -> None:
    """A named pool comes first, then the rule's own, then that of its priority."""
    assert rule(pool="nightly", concurrency=3).pool_name == "nightly"
    assert rule(concurrency=3).pool_name == "eventbridge.rule.big-orders"
    assert rule(priority="low").pool_name == "eventbridge.low"


@pytest.mark.parametrize(("priority", "weight"), [("high", 750), ("medium", 500), ("low", 250)])
def test_weight_of_a_priority(priority: str, weight: int) -> None:
    """The weights are those of docs/reference/rule-file/index.md."""
    assert weight == rule(priority=priority).weight


def test_pools_that_the_rules_ask_for() -> None:
    """Only pools of the rules' own are listed; slots come from whichever rule names them."""
    rules = rule_set(
        rule("a", pool="nightly"), rule("b", pool="nightly", concurrency=3), rule("c", concurrency=2), rule("d"),
        rule("e", pool="open"),
    )  # fmt: skip

    assert rules.pools() == {"nightly": 3, "eventbridge.rule.c": 2, "open": None}


def test_rules_of_one_runner() -> None:
    """A runner gets its rules, disabled ones too, and its bus, and nothing else."""
    alone, shared = rule("alone", runner="alone", enabled=False), rule("shared")
    rules = rule_set(alone, shared, rule("other", bus="z", runner="z"))

    assert rules.runners() == {"alone": "orders", "orders": "orders", "z": "z"}
    assert rule_set(alone) == rules.for_runner("alone")
    assert rule_set(shared) == rules.for_runner("orders")
    assert RuleSet() == rules.for_runner("nobody")


def test_disabled_rules_are_not_matched() -> None:
    """`enabled()` leaves out the rules that are switched off."""
    assert list(rule_set(rule("on"), rule("off", enabled=False)).enabled()) == ["on"]


def test_policies_by_name() -> None:
    """The named policies are Alibaba EventBridge's: 3 retries after 10-20 s; 176 from 1 s to 512 s."""
    backoff, decay = RetryPolicy.from_name("BACKOFF_RETRY"), RetryPolicy()

    assert backoff.max_retries == 3
    assert backoff.initial_delay_seconds * (1 - backoff.jitter) == pytest.approx(10.0)
    assert backoff.initial_delay_seconds * (1 + backoff.jitter) == pytest.approx(20.0)
    assert RetryPolicy.from_name("EXPONENTIAL_DECAY_RETRY") == decay
    assert (
        decay.max_retries,
        decay.initial_delay_seconds,
        decay.multiplier,
        decay.max_delay_seconds,
        decay.jitter,
    ) == (176, 1.0, 2.0, 512.0, 0.0)
    assert decay.maximum_event_age_seconds == 86_400.0


def test_numbers_stay_exact_under_any_name_of_rules_and_targets() -> None:
    """Names such as `pattern`, `value`, `form` and `steps` make no difference to a frozen rule set."""
    steps = [{"insert": {"path": "$.data.a", "value": Number("1.50")}}]
    transform = Transform(form="FIELDS", steps=steps)
    names = ("pattern", "value", "steps", "form", "bus", "targets")
    targets = {name: FileFields(name=name, path="/x", transform=transform) for name in names}
    rules = {
        name: Rule(
            name=name, bus="b", runner="b", pattern={"data": {"n": [Number("1.0")]}}, targets=targets, concurrency=2
        )
        for name in names
    }
    read = RuleSet.from_json(RuleSet(rules=rules).to_json())

    assert read.to_json() == RuleSet(rules=rules).to_json()
    assert read.rules["value"].targets["steps"].transform.steps == steps
    assert read.rules["form"].concurrency == 2
    assert transform.missing == "skip"


@pytest.mark.parametrize("lines", [True, False])
def test_a_rule_set_of_a_newer_format_is_refused(lines: bool) -> None:
    """Frozen with a rule a line or not, with the remedy; one that names no format was frozen before there were any."""
    frozen = rule_set(rule()).to_json() if lines else rule_set(rule()).to_json().replace("\n", "")
    unnamed, newer = (frozen.replace('{"format":1,', change, 1) for change in ("{", '{"format":2,'))

    assert RuleSet.from_json(unnamed) == rule_set(rule())
    with pytest.raises(NewerFormatError, match=rf"rule set {RuleSet.hash_of(newer)} is of format 2, .* up to 1\."):
        RuleSet.from_json(newer)


def test_settings_of_runners_are_frozen_and_read_again() -> None:
    """A set that says nothing of runners is frozen as before; one that does keeps it through both of its forms."""
    mode = Runner(mode="streaming", streaming=StreamingTimes(task_duration=60.0))
    plain_set, said = RuleSet(), RuleSet(modes={"orders": mode})

    assert '"runners"' not in plain_set.to_json()
    assert said.hash != plain_set.hash
    for again in (RuleSet.from_json(said.to_json()), RuleSet.from_lines(said.to_lines()), RuleSet.join([said])):
        assert again.mode_of("orders") == mode
        assert again.mode_of("others") == Runner()
