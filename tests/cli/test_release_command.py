"""`rules release`, and how `status` shows what is on hold: a budgeted rule whose worker dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.errors import SparkError
from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.routing.job import RouteJob, RuleShare, SliceResult, Task
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.open import open_runtime

EXPENSIVE = """
  expensive:
    bus: orders
    enabled: ENABLED
    pattern: {}
    targets:
      programmed: {type: file, path: FOLDER/programmed.jsonl, transform: {form: JSONATA, value: data.amount}}
"""
REASON = "the worker exited unexpectedly"


class Crashing(InProcessRouter):
    """A router whose worker dies of every share of a budgeted rule."""

    def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        if any(isinstance(task, RuleShare) for task in tasks):
            raise SparkError(REASON)
        return super().route_slices(job, tasks)


def write_rules(shop: Any, *, enabled: bool = True) -> None:
    """Write the shop's rules and the expensive one."""
    shop.write_rules()
    rules = shop.rules / "orders.yaml"
    more = EXPENSIVE.replace("ENABLED", str(enabled).lower()).replace("FOLDER", str(shop.folder))
    rules.write_text(rules.read_text() + more)


@pytest.fixture
def held(shop: Any, eventbridge: Callable[..., Any]) -> Any:
    """A shop whose rule `expensive` is on hold with three events of two batches, all other rules delivered."""
    write_rules(shop)
    runtime = open_runtime(Settings.from_mapping(shop.environ), connections_from_environment(shop.environ))
    try:
        for amounts in ((1, 2), (3,)):
            eventbridge("events", "publish", "orders", shop.orders(*amounts))
            deliver_until_idle(runtime, "orders", Crashing(runtime.store))
    finally:
        runtime.close()
    return shop


def test_status_shows_what_is_held(held: Any, eventbridge: Callable[..., Any]) -> None:
    """The rule with why and since when, and its deferred matches with what they wait for; in text and as JSON."""
    shown = eventbridge("status").out
    found = eventbridge("status", "--json").json

    assert "Deferred matches, times in UTC\n" in shown
    assert REASON in shown
    (rule,) = found["rules_on_hold"]
    assert (rule["rule"], len(rule["version"])) == ("expensive", 12)
    assert REASON in rule["reason"]
    deferred_matches = [
        (each["reason"], each["state"], each["events"], each["hold_reason"]) for each in found["deferred_matches"]
    ]
    assert deferred_matches == [
        ("on_hold", "on_hold", 1, "rule on hold"),
        ("route_failed", "on_hold", 2, "rule on hold"),
    ]
    assert {each["next_due_at"] for each in found["deferred_matches"]} == {None}


def test_a_released_rule_continues(held: Any, eventbridge: Callable[..., Any]) -> None:
    """Its deferred matches are due, the next delivery routes them, nothing is held; again changes nothing."""
    released = eventbridge("rules", "release", "expensive")

    assert released.code == 0
    assert released.out.startswith("Rule expensive released; it was on hold since ")
    assert released.out.endswith(f"({REASON}); due now: 2 deferred matches with 3 events\n")
    found = eventbridge("status", "--json").json
    assert found["rules_on_hold"] == []
    assert [each["state"] for each in found["deferred_matches"]] == ["scheduled", "scheduled"]
    held.deliver()
    assert sorted((held.folder / "programmed.jsonl").read_text().split()) == ["1", "2", "3"]
    assert eventbridge("status", "--json").json["deferred_matches"] == []
    assert eventbridge("audit").code == 0
    assert (
        eventbridge("rules", "release", "expensive").out
        == "Rule expensive is not on hold, and nothing waits for a release\n"
    )


def test_a_release_is_reported_as_json(held: Any, eventbridge: Callable[..., Any]) -> None:
    """The hold that was lifted, and how much is due."""
    found = eventbridge("rules", "release", "expensive", "--json").json

    assert found["hold"]["reason"] == REASON
    assert (found["deferred_matches"], found["events"], found["waits_for"]) == (2, 3, "")


def test_a_disabled_rule_keeps_its_deferred_matches(held: Any, eventbridge: Callable[..., Any]) -> None:
    """The hold is lifted, and the command says what the deliveries still wait for."""
    write_rules(held, enabled=False)

    released = eventbridge("rules", "release", "expensive")

    assert released.out.endswith("); its deferred matches stay on hold: rule disabled\n")
    assert [each["state"] for each in eventbridge("status", "--json").json["deferred_matches"]] == [
        "on_hold",
        "on_hold",
    ]


def test_a_release_of_a_rule_leaves_deliveries_of_a_disabled_target_on_hold(
    delivered: Any, eventbridge: Callable[..., Any]
) -> None:
    """The rule is not on hold: the message names the command that releases those deliveries."""
    output = eventbridge("rules", "release", "all-orders").out

    assert output == (
        "Rule all-orders is not on hold, and nothing waits for a release\n"
        "its target gone is disabled, so its deliveries stay on hold; to enable it: "
        "`eventbridge targets enable all-orders gone`\n"
    )


def test_an_unknown_rule_cannot_be_released(held: Any, eventbridge: Callable[..., Any]) -> None:
    """It is the user's error, and the message names the nearest rule."""
    wrong = eventbridge("rules", "release", "expensve")

    assert wrong.code == 2
    assert wrong.err == "Error: no rule file defines a rule 'expensve'. Did you mean expensive?\n"


STRICT = """
  strict:
    bus: orders
    pattern: {}
    targets:
      books: {type: http, url: "http://127.0.0.1:1/", allow_http: true, errors_tolerance: none, RETRY}
      lines:
        {type: file, path: FOLDER/lines.jsonl, errors_tolerance: none, transform: TRANSFORM}
"""


@pytest.fixture
def strict(shop: Any, eventbridge: Callable[..., Any]) -> Any:
    """A shop with a rule that dead-letters nothing, on hold at one of two events: a refusal, and a failed transform."""
    shop.write_rules()
    rules = shop.rules / "orders.yaml"
    more = STRICT.replace("RETRY", "retry: {policy: custom, max_retries: 0}").replace("FOLDER", str(shop.folder))
    transform = "{form: JSONPATH, value: $.data.nothing, missing: error}"
    rules.write_text(rules.read_text() + more.replace("TRANSFORM", transform))
    eventbridge("events", "publish", "orders", shop.orders(1))
    runtime = open_runtime(Settings.from_mapping(shop.environ), connections_from_environment(shop.environ))
    try:
        deliver_until_idle(runtime, "orders", InProcessRouter(runtime.store))
    finally:
        runtime.close()
    return shop


def test_a_rule_that_dead_letters_nothing_is_released(strict: Any, eventbridge: Callable[..., Any]) -> None:
    """Status names deliveries; what can be sent is tried again, what cannot be stays on hold; again does nothing."""
    rows = {row["target"]: row for row in eventbridge("status", "--json").json["pending"] if row["rule"] == "strict"}
    assert (rows["books"]["reason"], rows["lines"]["reason"]) == ("maximum_retry_attempts", "transform_failed")
    stuck = rows["books"]["hold_reason"].removeprefix("on hold at ")
    delivery = rows["lines"]["hold_reason"].removeprefix("on hold at ")

    released = eventbridge("rules", "release", "strict").out.splitlines()

    assert released == [
        f"strict: the delivery {stuck} to books (maximum_retry_attempts) is tried again",
        f"strict: the delivery {delivery} to lines (transform_failed) has no payload, so it stays on hold. "
        f"To skip it, run `eventbridge rules release strict --skip {delivery}`",
    ]
    found = eventbridge("rules", "release", "strict", "--json").json
    assert (found["retried"], [each["delivery_id"] for each in found["unsendable"]]) == ([], [delivery])


@pytest.mark.parametrize("nothing", ["", " "])
def test_nothing_is_skipped_for_an_id_that_is_empty(nothing: str, strict: Any, eventbridge: Callable[..., Any]) -> None:
    """Each id begins with nothing: a script's variable that is not set must not dead-letter what was on hold."""
    one, _ = (row["hold_reason"] for row in eventbridge("status", "--json").json["pending"] if row["rule"] == "strict")
    assert eventbridge("rules", "release", "strict", "--skip", one.removeprefix("on hold at ")).code == 0

    result = eventbridge("rules", "release", "strict", "--skip", nothing)

    assert result.code == 2
    assert "is blocked by no delivery" in result.err


def test_one_delivery_is_skipped(strict: Any, eventbridge: Callable[..., Any]) -> None:
    """Exactly that one becomes a dead letter; one the rule is not on hold at is an error that names those it is."""
    (row,) = [row for row in eventbridge("status", "--json").json["pending"] if row["target"] == "lines"]
    delivery = row["hold_reason"].removeprefix("on hold at ")

    skipped = eventbridge("rules", "release", "strict", "--skip", delivery)
    strict.deliver()

    assert skipped.out == (
        f"strict: the delivery {delivery} to lines (transform_failed) becomes a dead letter, "
        "and the next delivery is sent\n"
    )
    dead = eventbridge("dead-letters", "list", "--json").json
    assert [each["delivery_id"] for each in dead if each["rule"] == "strict"] == [delivery]
    again = eventbridge("rules", "release", "strict", "--skip", delivery)
    assert again.code == 2
    assert "the rule 'strict' is blocked by no delivery" in again.err
    assert "(books, maximum_retry_attempts)" in again.err
    assert eventbridge("audit").code == 0
