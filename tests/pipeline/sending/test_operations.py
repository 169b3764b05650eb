"""Operational events: changes of targets, deliveries and rules are published on the bus `eventbridge`, at
least once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from pipeline.delivering import REFUSED, RUNNER, RunningClock, Sending, events_on_operations_bus, http, rules

from eventbridge import fault_points
from eventbridge.control.overrides import enable_target
from eventbridge.control.release import deliveries_on_hold
from eventbridge.errors import BusError
from eventbridge.event.ids import delivery_id_text
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.settle.settlement import batch_deliveries
from eventbridge.repair.audit import audit
from eventbridge.routing.task import InProcessRouter
from eventbridge.rules.operations_bus import OPERATIONS_BUS

ALERTS = """
  alerts:
    bus: eventbridge
    pattern: {{type: [{types}]}}
    targets:
      pager: {{type: http, url: "{url}", allow_http: true, retry: {{policy: custom, max_retries: 0}}}}
"""


class Died(BaseException):
    """The process died here."""


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    """Leave no hook behind."""
    yield
    fault_points.install(None)


def kinds(sending: Sending) -> list[str]:
    """Return the types of the events on the bus `eventbridge`."""
    return [event["type"] for event in events_on_operations_bus(sending)]


def dying_at(point: str) -> Callable[[str], None]:
    """Return a hook that lets the process die at a point."""

    def hook(reached: str) -> None:
        if reached == point:
            raise Died(point)

    return hook


def test_a_target_that_fails_and_heals_is_reported(sending: Sending, clock: RunningClock) -> None:
    """Degraded when its breaker opens, not when it opens again; recovered when it closes."""
    sending.begin(30, crm=http(REFUSED, max_in_flight=1))
    sending.deliver()
    clock.advance(31)
    sending.retry()
    assert kinds(sending) == ["target.degraded"]
    sending.rules(crm="/healthy/crm")
    clock.advance(2 * 3600)

    sending.deliver()

    degraded, recovered = events_on_operations_bus(sending)
    assert recovered["type"] == "target.recovered"
    assert degraded["subject"] == recovered["subject"] == "orders/crm"
    assert degraded["data"]["reason"] == "10 of 10 attempts failed within 30 s"
    assert recovered["data"] == {
        "rule": "orders",
        "target": "crm",
        "reason": "5 probes were good",
        "before": recovered["data"]["before"],
        "since": degraded["time"],
    }
    assert sending.runtime.ledger.operational_events.waiting(9) == []


def test_a_target_disabled_by_410_and_enabled_again_is_reported(sending: Sending) -> None:
    """410 disables it; `targets enable` takes it back."""
    sending.begin(3, crm=http("/gone/crm", max_in_flight=1))
    sending.deliver()

    enable_target(sending.runtime, "orders", "crm")

    assert set(kinds(sending)) == {"target.disabled", "delivery.dead_lettered", "target.recovered"}


def test_dead_letters_are_reported_in_one_event_a_batch_target_and_reason(sending: Sending) -> None:
    """With how many they are and the names of the first ten; what is not a delivery has its place for a name."""
    runtime = sending.begin(25, b"{no event", crm="/bad/crm", other="/bad/other")

    sending.deliver()

    found = {event["subject"]: event["data"] for event in events_on_operations_bus(sending)}
    assert set(found) == {"orders/crm", "orders/other", "orders"}
    assert (found["orders/crm"]["reason"], found["orders/crm"]["count"]) == ("non_retryable", 25)
    assert len(found["orders/crm"]["first"]) == 10
    assert (found["orders"]["reason"], found["orders"]["count"], found["orders"]["rule"]) == ("malformed", 1, None)
    assert {data["batch_id"] for data in found.values()} == {runtime.ledger.batches.find()[0].batch_id}


def test_a_rule_that_is_held_at_a_delivery_is_reported_where_and_when(sending: Sending, clock: RunningClock) -> None:
    """Which delivery, of which target and event, and when the target refused it: not when its batch was planned."""
    batch = sending.routed(2, crm=http("/bad/crm", errors_tolerance="none"))
    clock.advance(20)
    pushed_at = clock()
    sending.push(batch)
    clock.advance(20)
    settled_at = clock()
    sending.settle(batch)
    assert commit(sending.runtime, batch.batch_id)

    (event,) = events_on_operations_bus(sending)
    (held,) = deliveries_on_hold(sending.runtime, "orders").values()
    tables = [
        table for _, _, table in batch_deliveries(sending.runtime, batch, ["delivery_id", "partition_id", "offset"])
    ]
    rows = [row for table in tables for row in table.to_pylist()]
    (row,) = [row for row in rows if delivery_id_text(row["delivery_id"]) == held.delivery_id]
    assert (event["type"], event["subject"]) == ("rule.on_hold", "orders")
    assert pushed_at < datetime.fromisoformat(event["time"]) < settled_at
    assert event["data"] == {
        "rule": "orders",
        "target": "crm",
        "reason": "non_retryable",
        "on_hold_at": held.delivery_id,
        "position": f"placed/{row['partition_id']}/{row['offset']}",
        "batch_id": batch.batch_id,
    }


def test_dead_letters_are_reported_with_the_time_of_their_decision(sending: Sending, clock: RunningClock) -> None:
    """The time is that of the target's last refusal, not of the plan or of the settlement."""
    batch = sending.routed(2, crm="/bad/crm")
    clock.advance(20)
    pushed_at = clock()
    sending.push(batch)
    clock.advance(20)
    settled_at = clock()
    sending.settle(batch)
    sending.settle(batch)

    times = {event["time"] for event in events_on_operations_bus(sending)}
    assert len(times) == 1
    assert pushed_at < datetime.fromisoformat(times.pop()) < settled_at


@pytest.mark.parametrize("point", ["bus.publish", "bus.publish.done"])
def test_every_change_is_reported_whichever_process_dies(sending: Sending, point: str) -> None:
    """If the process dies before the event is on the bus, the next stage publishes it; if after, it is published again,
    under the same id.
    """
    sending.routed(4, crm="/bad/crm")
    batch_id = sending.runtime.ledger.batches.find()[0].batch_id
    sending.push(sending.runtime.ledger.batches.get(batch_id))
    fault_points.install(dying_at(point))
    with pytest.raises(Died):
        sending.settle(sending.runtime.ledger.batches.get(batch_id))
    fault_points.install(None)
    before = len(events_on_operations_bus(sending))

    sending.settle(sending.runtime.ledger.batches.get(batch_id))
    assert commit(sending.runtime, batch_id)

    events = events_on_operations_bus(sending)
    assert len(events) > before
    assert {event["type"] for event in events} == {"delivery.dead_lettered"}
    assert len({event["id"] for event in events}) == 1
    assert sending.runtime.ledger.operational_events.waiting(9) == []


def test_a_bus_that_accepts_nothing_stops_no_batch(sending: Sending) -> None:
    """The batch is committed; the operational event waits in the ledger for the next stage that reaches the bus."""

    def broken(point: str) -> None:
        if point == "bus.publish":
            raise BusError("the disk of the bus is full")

    runtime = sending.begin(2, crm="/bad/crm")
    fault_points.install(broken)
    sending.deliver()
    fault_points.install(None)
    assert runtime.ledger.batches.find()[0].state == "committed"
    waiting = [each.type for each in runtime.ledger.operational_events.waiting(9)]
    assert waiting == ["schema.discovered", "delivery.dead_lettered"]

    sending.retry()

    assert kinds(sending) == ["delivery.dead_lettered"]


def test_the_bus_is_where_the_rules_in_force_say(sending: Sending) -> None:
    """A stage that publishes an operational event reads no rule files: only `listen` does."""
    runtime = sending.begin(crm="/healthy/crm")
    listen(runtime, RUNNER)
    elsewhere = "buses:\n  eventbridge:\n    source: {type: kafka, connection: nowhere, topics: [news]}\n"
    sending.write(rules({"crm": "/healthy/crm"}).replace("buses:\n", elsewhere))
    before = runtime.operations_bus()
    listen(runtime, RUNNER)

    assert before == OPERATIONS_BUS
    assert runtime.operations_bus().source.type == "kafka"


def test_a_rule_can_alert_on_them(sending: Sending, site: Any) -> None:
    """The bus exists without any rule file that names it. An alert that cannot be delivered causes no further alert."""
    alerts = ALERTS.format(types="delivery.dead_lettered", url=sending.receiver.url("/bad/pager"))
    sending.write(rules({"crm": "/bad/crm"}) + alerts)
    runtime = sending.runtime
    assert listen(runtime, "eventbridge") is None, "its runner begins here"
    sending.publish(5)
    sending.deliver()

    for _ in range(3):
        deliver_until_idle(runtime, "eventbridge", InProcessRouter(runtime.store))

    (alert,) = [request for request in sending.requests() if request["path"] == "/bad/pager"]
    assert alert["webhook_id"]
    assert len(events_on_operations_bus(sending)) == 1
    reconciliation = audit(runtime)
    assert reconciliation.deliveries["alerts/pager"] == {"matched": 1, "delivered": 0, "dead_lettered": 1, "pending": 0}
    assert reconciliation.differences == ()


def test_old_events_are_removed_once_every_runner_has_them(sending: Sending, clock: RunningClock) -> None:
    """With the next event that is published, and after 30 days; what a rule's runner has not taken stays."""
    alerts = ALERTS.format(types="delivery.dead_lettered", url=sending.receiver.url("/healthy/pager"))
    sending.write(rules({"crm": "/bad/crm"}) + alerts)
    runtime = sending.runtime
    assert listen(runtime, "eventbridge") is None, "its runner begins here"

    def die() -> list[str]:
        """Publish an event about a dead letter, and return the ids on the bus then."""
        sending.publish(1)
        sending.deliver()
        return [event["id"] for event in events_on_operations_bus(sending)]

    (first,) = die()
    clock.advance(31 * 86_400)
    assert die()[:1] == [first], "it was not taken"
    deliver_until_idle(runtime, "eventbridge", InProcessRouter(runtime.store))
    assert len([each for each in sending.requests() if each["path"] == "/healthy/pager"]) == 2

    left = die()

    assert len(left) == 2
    assert first not in left


@pytest.mark.parametrize("named", [True, False])
def test_a_rule_that_moved_to_another_runner_keeps_what_its_old_one_left(
    sending: Sending, clock: RunningClock, named: bool
) -> None:
    """The new one will continue there; a runner without rules keeps nothing."""
    alerts = ALERTS.format(types="delivery.dead_lettered", url=sending.receiver.url("/healthy/pager"))
    sending.write(rules({"crm": "/bad/crm"}) + alerts)
    assert listen(sending.runtime, "eventbridge") is None
    sending.publish(1)
    sending.deliver()
    moved = alerts.replace("bus: eventbridge", "bus: eventbridge\n    runner: pagers")
    sending.write(rules({"crm": "/bad/crm"}) + (moved if named else ""))
    clock.advance(31 * 86_400)
    sending.publish(1)
    sending.deliver()

    assert len(events_on_operations_bus(sending)) == (2 if named else 1)
    if named:
        deliver_until_idle(sending.runtime, "pagers", InProcessRouter(sending.runtime.store))
        assert len([each for each in sending.requests() if each["path"] == "/healthy/pager"]) == 2
