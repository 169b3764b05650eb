"""An hour is checked once, by Great Expectations: page and record are kept, what failed is reported, rules go
on hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest
from pipeline.delivering import RunningClock, Sending, events_on_operations_bus, http, rules

from eventbridge import fault_points
from eventbridge.control.release import release_rule
from eventbridge.errors import UserError
from eventbridge.model.quality import QualityRecord
from eventbridge.policy.quality import failure_message
from eventbridge.quality.check import check_hour, check_quality
from eventbridge.quality.record import find_record, hour_of, list_checked_hour_page, list_checked_hours
from eventbridge.repair.audit import audit

#: Great Expectations imports what Python 3.11 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:module 'sre_:DeprecationWarning")

EXPECT = "{fields: {$.data.amount: {null_rate: {at_most: 0.25}, value: {at_least: 0, at_most: 100}}}}"


class Died(BaseException):
    """The process died here."""


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    """Leave no hook behind."""
    yield
    fault_points.install(None)


def an_hour_later(clock: RunningClock) -> None:
    """Put the clock into the next hour."""
    clock.advance((hour_of(clock()) + timedelta(hours=1) - clock()).total_seconds() + 1)


def event(number: int, **data: object) -> bytes:
    """Return an order."""
    order = {"specversion": "1.0", "id": str(number), "source": "/shop", "type": "order.placed", "data": data}
    return json.dumps(order).encode()


def values(record: QualityRecord, subject: str) -> dict[str, float]:
    """Return the measures of a subject."""
    return {each.name: each.value for each in record.measures if str(each.subject) == subject}


def quality_events(sending: Sending) -> list[tuple[str, str, int]]:
    """Return type, id and number of failures of the events about checks."""
    return [
        (e["type"], e["id"], e["data"]["failures"])
        for e in events_on_operations_bus(sending)
        if e["type"].startswith("quality.")
    ]


def test_an_hour_is_measured_and_what_failed_is_reported_and_held(sending: Sending, clock: RunningClock) -> None:
    """Shares outside their bounds fail; the rule whose field failed is on hold; page and record are in the store."""
    an_hour_later(clock)  # an hour of its own
    sending.write(rules({"crm": http("/healthy/crm"), "bad": http("/status/400")}, expect=EXPECT))
    orders = [event(n, amount=amount) for n, amount in enumerate([1, 2.5, None, 1e30])]
    sending.publish(*orders, event(9, price=1), event(9, price=1), b"{")
    sending.deliver()
    with pytest.raises(UserError, match="is not over yet"):
        check_quality(sending.runtime, hour_of(clock()))
    an_hour_later(clock)

    found = check_quality(sending.runtime)

    assert values(found, "orders") == {"events": 7, "malformed_rate": 1 / 7, "duplicate_rate": 1 / 7}
    assert values(found, "orders/crm") == {
        "deliveries": 5,
        "delivered_rate": 1.0,
        "pending_rate": 0.0,
        "dead_letter_rate": 0.0,
    }
    assert values(found, "orders/bad")["dead_letter_rate"] == 1.0
    assert found.dead_letters == {"orders/crm": {}, "orders/bad": {"non_retryable": 5}}
    assert values(found, "orders $.data.amount") == {
        "null_rate": 0.4,
        "not_a_number_rate": 0.0,
        "least_value": 1.0,
        "greatest_value": 1e30,
    }
    assert sorted(map(failure_message, found.failures)) == [
        "orders $.data.amount: greatest_value is 1e+30, expected at most 100",
        "orders $.data.amount: null_rate is 0.4, expected at most 0.25",
        "orders/bad: dead_letter_rate is 1, expected at most 0.05",
        "orders: duplicate_rate is 0.1429, expected at most 0.05",
        "orders: malformed_rate is 0.1429, expected at most 0.01",
    ]
    assert {each.note for each in found.measures if each.name == "events"} == {"too little history: 0 of 3 days"}
    assert b"malformed_rate" in sending.runtime.store.get(found.page)
    assert find_record(sending.runtime) == check_hour(sending.runtime, found.hour.isoformat()) == found
    assert [(each.hour, each.failures) for each in list_checked_hours(sending.runtime)] == [(found.hour, 5)]

    hold = sending.runtime.ledger.quality.holds()["orders"]
    assert hold.found_in == found.hour.isoformat()
    assert hold.detail.startswith("$.data.amount: null_rate is 0.4, expected at most 0.25")
    release_rule(sending.runtime, "orders")
    assert check_quality(sending.runtime, found.hour) == found  # holds nothing again
    assert sending.runtime.ledger.quality.holds() == {}
    ((kind, _, failures),) = quality_events(sending)
    assert (kind, failures) == ("quality.failed", 5)
    assert audit(sending.runtime).differences == ()


def test_volumes_are_compared_with_the_same_hour_of_other_days(sending: Sending, clock: RunningClock) -> None:
    """After three days of ten events, an hour without any fails for the bus and for the target."""
    an_hour_later(clock)
    sending.write(rules({"crm": http("/healthy/crm")}))
    for _ in range(3):
        sending.publish(10)
        sending.deliver()
        clock.advance(3_600)
        assert check_quality(sending.runtime).failures == ()
        clock.advance(23 * 3_600)
    clock.advance(3_600)

    found = check_quality(sending.runtime)

    assert list(map(failure_message, found.failures)) == [
        "orders: events is 0, expected at least 5 and at most 15",
        "orders/crm: deliveries is 0, expected at least 5 and at most 15",
    ]
    assert [kind for kind, _, _ in quality_events(sending)] == [*["quality.checked"] * 3, "quality.failed"]
    first, cursor = list_checked_hour_page(sending.runtime, 3, None)
    rest, end = list_checked_hour_page(sending.runtime, 3, cursor)
    assert ([*first, *rest], end) == (list_checked_hours(sending.runtime), None)


def test_a_check_that_dies_anywhere_is_made_once(sending: Sending, clock: RunningClock) -> None:
    """Stopped at every point and run again: one row, one event id, one hold, and the record that was announced."""
    an_hour_later(clock)
    sending.write(rules({"crm": http("/healthy/crm")}, expect=EXPECT))
    sending.publish(event(1, amount=1_000))
    sending.deliver()
    an_hour_later(clock)
    fatal = 0
    while True:
        fatal += 1
        reached = 0

        def hook(point: str, fatal: int = fatal) -> None:
            nonlocal reached
            reached += point not in fault_points.READS
            if reached == fatal:
                raise Died(point)

        fault_points.install(hook)
        try:
            found = check_quality(sending.runtime)
            break
        except Died:
            continue
        finally:
            fault_points.install(None)

    assert fatal > 5
    assert find_record(sending.runtime) == found
    assert len(list_checked_hours(sending.runtime)) == 1
    assert len({event_id for _, event_id, _ in quality_events(sending)}) == 1
    assert set(sending.runtime.ledger.quality.holds()) == {"orders"}
