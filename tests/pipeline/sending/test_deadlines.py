"""`deliver_within`: what is late is not sent but a dead letter, whatever it waited for; it is reported of before."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pipeline.delivering import REFUSED, RunningClock, Sending, events_on_operations_bus, http, rules
from pipeline.ordering import Recorder, keyed, ordered, publish
from stored import dead_letters

from eventbridge.control.consecutive_batches import deliver_redrive
from eventbridge.control.overrides import operate
from eventbridge.dead_letters.redrive_plan import begin_redrive
from eventbridge.dead_letters.selection import Selection
from eventbridge.repair.audit import audit
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime

#: Where what is late is not ended, it is due over and over and delivering never ends: that fails, and soon.
pytestmark = pytest.mark.timeout(60)

OFTEN = "{policy: custom, max_retries: 99, initial_delay: 10m, multiplier: 1, max_delay: 10m, jitter: 0}"
WITHIN = {"deliver_within": "1h", "retry": OFTEN}


def entries(runtime: Runtime) -> list[tuple[str, int]]:
    """Return the reason and the number of attempts of each dead letter."""
    return [(record["reason"], len(record["attempts"])) for record in dead_letters(runtime, whole=True)]


def late(sending: Sending) -> list[dict[str, Any]]:
    """Return the operational events of deliveries that are running late."""
    return [event for event in events_on_operations_bus(sending) if event["type"] == "delivery.late"]


def test_a_delivery_that_no_retry_can_deliver_in_time_is_a_dead_letter_at_once(
    sending: Sending, clock: RunningClock
) -> None:
    """Tried every 10 minutes for an hour from its publishing; the sixth response ends it, none waits for the hour."""
    runtime = sending.begin(1, crm=http(REFUSED, **WITHIN))
    for _ in range(8):
        sending.deliver()
        clock.advance(601)

    assert entries(runtime) == [("deadline_missed", 6)]
    assert audit(runtime).differences == ()


def test_an_event_that_comes_too_late_is_never_sent(sending: Sending, clock: RunningClock) -> None:
    """It lay on the bus for longer than its target wants it; one published now is delivered."""
    runtime = sending.begin(2, crm=http("/healthy/crm", **WITHIN))
    clock.advance(3601)
    sending.site.reopen()
    sending.publish(1)
    sending.deliver()

    assert entries(runtime) == [("deadline_missed", 0)] * 2
    assert len(sending.requests()) == 1
    assert audit(runtime).deliveries["orders/crm"] == {"matched": 3, "delivered": 1, "dead_lettered": 2, "pending": 0}


def test_time_held_counts(sending: Sending, clock: RunningClock) -> None:
    """A disabled rule holds its deliveries; at their deadline they end, unsent, and others of it are on hold on."""
    runtime = sending.begin(1, crm=http(REFUSED, **WITHIN), slow=http(REFUSED, deliver_within="2h", retry=OFTEN))
    sending.deliver()
    sending.disable(crm=http("/healthy/crm", **WITHIN), slow=http("/healthy/slow", deliver_within="2h", retry=OFTEN))
    sending.deliver()
    clock.advance(3601)
    sending.deliver()

    assert entries(runtime) == [("deadline_missed", 1)]
    assert [row.hold_reason for row in runtime.ledger.pending.find() if row.state != "closed"] == ["rule disabled"]
    assert sending.requests() == []
    assert audit(runtime).differences == ()


def test_time_held_counts_for_ordered_targets_too(sending: Sending, clock: RunningClock, recorder: Recorder) -> None:
    """A paused one has no turns: what is late ends at its deadline, and nothing is due over and over."""
    publish(sending, keyed(0, "a"), keyed(1, "a"))
    sending.write(rules({"crm": ordered("ordering_key: $.data.customer, deliver_within: 1h")}))
    operate(sending.runtime, "pause target", "orders", "crm")
    sending.deliver()
    clock.advance(3601)
    sending.deliver()

    assert entries(sending.runtime) == [("deadline_missed", 0)] * 2
    assert sending.runtime.ledger.pending.counts_by_rule() == {}
    assert recorder.asked == []
    assert audit(sending.runtime).differences == ()


def test_closed_hours_count(sending: Sending, clock: RunningClock) -> None:
    """What waits until tomorrow is dead-lettered at its deadline today."""
    today = clock().date()
    closed = f"{{time_zone: UTC, blackout_dates: [{today}, {today + timedelta(days=1)}]}}"
    runtime = sending.begin(1, crm=http("/healthy/crm", deliver_between=closed, **WITHIN))
    sending.deliver()
    clock.advance(3601)
    sending.deliver()

    assert entries(runtime) == [("deadline_missed", 0)]
    assert sending.requests() == []


def test_an_ordered_target_continues_behind_what_was_late(sending: Sending, clock: RunningClock) -> None:
    """The first of its key cannot be delivered; at the deadline it ends, as does what waited behind it."""
    ordered = {"ordering_key": "$.source", **WITHIN}
    runtime = sending.begin(3, crm=http(REFUSED, **ordered))
    sending.deliver()
    clock.advance(3601)
    sending.rules(crm=http("/healthy/crm", **ordered))
    sending.publish(1)
    sending.deliver()
    clock.advance(2)  # behind its key it looks up every second
    sending.deliver()

    assert sorted(reason for reason, _ in entries(runtime)) == ["deadline_missed"] * 3
    assert len(sending.requests()) == 1
    assert audit(runtime).differences == ()


def test_a_redrive_begins_their_time_again(sending: Sending, clock: RunningClock) -> None:
    """An expired delivery is sent when it is redriven: the deadline counts from the redrive."""
    runtime = sending.begin(1, crm=http("/healthy/crm", **WITHIN))
    clock.advance(3601)
    sending.deliver()
    assert entries(runtime) == [("deadline_missed", 0)]

    request = begin_redrive(
        runtime, Selection(reason="deadline_missed"), "run", rate=None, retransform=False, again=False
    )
    deliver_redrive(runtime, request.redrive_id, InProcessRouter(runtime.store))

    assert len(sending.requests()) == 1
    assert audit(runtime).differences == ()


def test_it_is_reported_once_when_four_fifths_of_the_time_are_over(sending: Sending, clock: RunningClock) -> None:
    """One operational event for what waits then, though it is tried and becomes pending again afterwards."""
    sending.begin(2, crm=http(REFUSED, **WITHIN))
    sending.deliver()
    clock.advance(47 * 60)
    sending.deliver()
    assert late(sending) == []

    clock.advance(2 * 60)
    sending.deliver()
    clock.advance(9 * 60)
    sending.deliver()

    (event,) = late(sending)
    assert event["subject"] == "orders/crm"
    assert event["data"]["count"] == 2
    assert event["data"]["deliver_by"] > event["time"]
    assert event["data"]["waits_for"] == ["retry_scheduled"]


def test_the_planner_of_retries_finds_late_rows(sending: Sending, clock: RunningClock) -> None:
    """A row that is due only later is taken at its deadline and not when it is due."""
    runtime = sending.begin(1, crm=http("/healthy/crm", not_before="2h", **WITHIN))
    sending.deliver()
    assert entries(runtime) == []
    assert [row.published_at is not None for row in runtime.ledger.pending.find()] == [True]
    clock.advance(3601)
    sending.deliver()
    assert entries(runtime) == [("deadline_missed", 0)]
