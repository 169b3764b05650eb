"""A rule whose matched events violate its expectation is put on hold alone, loses nothing, and continues when
released.
"""

from __future__ import annotations

from pipeline.delivering import REFUSED, RunningClock, Sending, events_on_operations_bus, http, rules
from pipeline.ordering import Recorder, keyed, ordered, publish

from eventbridge.control.overrides import operate
from eventbridge.control.release import release_rule
from eventbridge.repair.audit import audit
from eventbridge.views.status import status

TWO_RULES = (
    rules({"crm": http("/healthy/crm")}, expect="{matches: {at_most: 5}}")
    + """
  others:
    bus: orders
    pattern: {}
    targets:
      note: """
    + http("/healthy/note")
)


def received(sending: Sending) -> dict[str, int]:
    """Return how many requests each path got."""
    found: dict[str, int] = {}
    for request in sending.requests():
        found[request["path"]] = found.get(request["path"], 0) + 1
    return found


def test_a_batch_that_is_not_as_expected_holds_its_rule_alone(sending: Sending) -> None:
    """The batch itself is delivered; the next one waits, another rule's does not; released, all arrives, once."""
    sending.write(TWO_RULES)
    sending.publish(6)
    first = sending.deliver_batch()
    assert received(sending) == {"/healthy/crm": 6, "/healthy/note": 6}
    (held,) = status(sending.runtime).rules_on_hold
    assert (held.rule, held.reason) == ("orders", "expectation_failed: matches is 6, expected at most 5")

    sending.publish(3)
    sending.deliver()
    assert received(sending) == {"/healthy/crm": 6, "/healthy/note": 9}
    (pending,) = status(sending.runtime).pending
    assert (pending.rule, pending.state, pending.hold_reason, pending.count) == (
        "orders",
        "on_hold",
        "expectation failed",
        3,
    )
    (event,) = [event["data"] for event in events_on_operations_bus(sending) if event["type"] == "rule.on_hold"]
    assert (event["rule"], event["reason"], event["on_hold_at"]) == ("orders", held.reason, first)

    released = release_rule(sending.runtime, "orders")
    assert released.expectation is not None
    assert (released.expectation.detail, released.released) == ("matches is 6, expected at most 5", 3)
    sending.deliver()

    assert received(sending) == {"/healthy/crm": 9, "/healthy/note": 9}
    assert status(sending.runtime).rules_on_hold == ()
    assert release_rule(sending.runtime, "orders").nothing
    assert audit(sending.runtime).differences == ()


def test_too_few_matches_hold_a_rule_that_nothing_matched(sending: Sending) -> None:
    """A batch without any event for the rule is one of 0 matches; a rule that is disabled expects nothing."""
    sending.write(rules({"crm": http("/healthy/crm")}, expect="{matches: {at_least: 1}}"))
    operate(sending.runtime, "disable rule", "orders")
    sending.publish(2)
    sending.deliver_batch()
    assert sending.runtime.ledger.quality.holds() == {}

    operate(sending.runtime, "enable rule", "orders")
    sending.publish(sending.order(7, type="order.lost"))
    sending.deliver_batch()

    assert sending.runtime.ledger.quality.holds()["orders"].detail == "matches is 0, expected at least 1"


def test_dead_letters_and_failed_transforms_hold_a_rule(sending: Sending) -> None:
    """Both rates are those of the batch: what is pending counts for neither, a failed transform for both."""
    expect = "{dead_letter_rate: {at_most: 0.4}, transform_failure_rate: {at_most: 0.1}}"
    form = "{form: TEMPLATE, value: {id: $.data.rare}, template: '${id}', missing: error}"
    refused = http(REFUSED, retry="{policy: custom, max_retries: 3, initial_delay: 1h, max_delay: 1h}")
    sending.write(rules({"crm": http("/healthy/crm", transform=form), "down": refused}, expect=expect))
    sending.publish(2)
    sending.deliver_batch()

    assert sending.runtime.ledger.quality.holds()["orders"].detail == (
        "dead_letter_rate is 1, expected at most 0.4; transform_failure_rate is 0.5, expected at most 0.1"
    )
    assert audit(sending.runtime).differences == ()


def test_an_ordered_target_continues_in_order_after_a_release(
    sending: Sending, clock: RunningClock, recorder: Recorder
) -> None:
    """What came before the hold, during it and after the release arrives in the order it was published in."""
    text = rules({"crm": ordered()}, expect="{matches: {at_most: 3}}")
    sending.write(text)
    publish(sending, *[keyed(n, "a") for n in range(4)])
    assert sending.deliver_batch()
    publish(sending, *[keyed(n, "a") for n in range(4, 7)])
    assert sending.deliver_batch()
    assert recorder.got == {"a": [0, 1, 2, 3]}

    release_rule(sending.runtime, "orders")
    publish(sending, *[keyed(n, "a") for n in range(7, 9)])
    sending.deliver()
    clock.advance(5)
    sending.deliver()

    assert recorder.got == {"a": list(range(9))}
    assert audit(sending.runtime).differences == ()


def test_a_pause_and_a_hold_are_lifted_one_by_one(sending: Sending) -> None:
    """A rule that is on hold and paused continues only when it is released and resumed, in either order."""
    sending.write(rules({"crm": http("/healthy/crm")}, expect="{matches: {at_most: 1}}"))
    sending.publish(2)
    sending.deliver_batch()
    operate(sending.runtime, "pause rule", "orders")
    sending.publish(1)
    sending.deliver()
    assert {row.hold_reason for row in sending.runtime.ledger.pending.find()} == {"rule paused"}

    assert operate(sending.runtime, "resume rule", "orders").released == 0
    assert {row.hold_reason for row in sending.runtime.ledger.pending.find()} == {"expectation failed"}
    assert release_rule(sending.runtime, "orders").released == 1
    sending.deliver()

    assert received(sending) == {"/healthy/crm": 3}
