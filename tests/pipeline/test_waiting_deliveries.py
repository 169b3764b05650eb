"""Deliveries wait for their own time or for their target's hours, and are then delivered and reconciled.

The clock shows noon of 1 March 2026, a Sunday, until a test moves it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pipeline.modes import deliver_all
from pipeline.routing import buffered, deliveries, routed
from stored import dead_letters

from eventbridge.delivery.push import push
from eventbridge.model.file_detail import Routed
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.retry.plan import plan_retries
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.repair.audit import audit
from eventbridge.runtime.runtime import Runtime

Order = Callable[..., bytes]

RULES = """
buses:
  orders:
    source: {type: embedded, topics: [placed], partitions: 1, start_at: earliest}
rules:
  waiting:
    bus: orders
    pattern: {}
    targets:
      lines: {type: file, path: LINES, FIELDS}
  others:
    bus: orders
    pattern: {}
    targets:
      lines: {type: file, path: OTHERS}
"""
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
RETRIES = (
    "retry: {policy: custom, max_retries: 5, initial_delay: 1h, multiplier: 1, "
    "max_delay: 1h, jitter: 0, maximum_event_age: AGE}"
)


class BudgetedSite:
    """An installation whose rule `waiting` has the given fields for waiting, with what its target received."""

    def __init__(self, site: Any, clock: Any) -> None:
        self.site, self.clock = site, clock

    def begin(self, fields: str, *orders: bytes) -> Runtime:
        """Write the rules, publish orders, and return the runtime."""
        self.write_rules(fields)
        self.site.publish(*orders, key="k")
        runtime: Runtime = self.site.runtime
        return runtime

    def write_rules(self, fields: str) -> None:
        """Write the rules."""
        text = RULES.replace("FIELDS", fields)
        for name in ("LINES", "OTHERS"):
            text = text.replace(name, str(self.site.folder / name))
        self.site.write_rules(text)

    def deliver(self) -> None:
        """Deliver until nothing is available or due."""
        deliver_all(self.site.runtime, "orders")

    def received(self, name: str = "LINES") -> list[str]:
        """Return the ids of the events that a target has received."""
        path = self.site.folder / name
        return [json.loads(line)["id"] for line in path.read_text().splitlines()] if path.is_file() else []

    def waiting(self) -> list[tuple[int, datetime, int]]:
        """Return the number, the due time and the attempts of the pending deliveries."""
        rows = [row for row in self.site.runtime.ledger.pending.find() if row.state == "scheduled"]
        return sorted((row.count, row.due_at, row.attempts) for row in rows)


@pytest.fixture
def budgeted_site(site: Any, clock: Any) -> BudgetedSite:
    """An installation."""
    return BudgetedSite(site, clock)


def at(order: Order, number: int, time: object) -> bytes:
    """Return an order whose data has the time from which it may be sent."""
    return order(number, data={"at": time})


def test_an_event_says_when_it_is_delivered(budgeted_site: BudgetedSite, order: Order, clock: Any) -> None:
    """Each event is delivered at its own time; one with no, a null or a past time is delivered immediately."""
    runtime = budgeted_site.begin(
        "not_before: $.data.at",
        at(order, 1, "2026-03-01T14:00:00+01:00"),  # 13:00
        order(2),
        at(order, 3, None),
        at(order, 4, "2026-03-01T11:00:00Z"),
        at(order, 5, "2026-03-01T12:30:00.5Z"),
    )

    budgeted_site.deliver()
    assert budgeted_site.received() == ["2", "3", "4"]
    assert budgeted_site.received("OTHERS") == ["1", "2", "3", "4", "5"]
    half_past = NOON + timedelta(seconds=1801)
    assert budgeted_site.waiting() == [(1, half_past, 0), (1, NOON + timedelta(hours=1), 0)]
    clock.now = half_past - timedelta(seconds=1)
    budgeted_site.deliver()
    assert plan_retries(runtime).batch_id is None
    clock.now = half_past
    budgeted_site.deliver()
    assert budgeted_site.received() == ["2", "3", "4", "5"]
    clock.now = NOON + timedelta(hours=1)
    budgeted_site.deliver()

    assert budgeted_site.received() == ["2", "3", "4", "5", "1"]
    reconciliation = audit(runtime)
    assert reconciliation.differences == ()
    assert reconciliation.deliveries["waiting/lines"] == {
        "matched": 5,
        "delivered": 5,
        "dead_lettered": 0,
        "pending": 0,
    }


@pytest.mark.parametrize(
    ("time", "said"),
    [
        ("tomorrow", r"not_before: $.data.at is not an RFC 3339 time"),
        ("2026-03-01T14:00:00", "is not an RFC 3339 time"),
        (1772366400, "is not an RFC 3339 time"),
        ("2026-02-30T14:00:00Z", "which is not a valid time"),
        ("2026-03-01T24:00:01Z", "which is not a valid time"),
        ("2027-03-03T12:00:00Z", "more than 366 days ahead"),
        ("9999-12-31T23:59:59-12:00", "more than 366 days ahead|which is not a valid time"),
    ],
)
def test_a_time_that_is_none_fails_its_delivery(
    budgeted_site: BudgetedSite, order: Order, time: object, said: str
) -> None:
    """An invalid time gives a dead letter `transform_failed` with the reason; other deliveries continue."""
    runtime = budgeted_site.begin("not_before: $.data.at", at(order, 1, time), order(2))

    budgeted_site.deliver()

    (record,) = dead_letters(runtime, whole=True)
    assert (record["reason"], record["event_id"], record["rule"]) == ("transform_failed", "1", "waiting")
    assert any(part in record["detail"] for part in said.split("|"))
    assert budgeted_site.received() == ["2"]
    assert budgeted_site.received("OTHERS") == ["1", "2"]
    assert audit(runtime).differences == ()


def test_a_duration_after_arrival(budgeted_site: BudgetedSite, order: Order, clock: Any) -> None:
    """Until the duration after arrival is over, a delivery is neither handed to a push nor tried."""
    runtime = budgeted_site.begin("not_before: 90s", order(1), order(2))

    budgeted_site.deliver()
    (batch,) = runtime.ledger.batches.find()
    handed_out = {
        chunk.pieces[0].rule: chunk.map_index for chunk in runtime.ledger.chunks.list_for_batch(batch.batch_id)
    }
    assert handed_out == {"others": 0, "waiting": None}
    assert budgeted_site.waiting() == [(2, NOON + timedelta(seconds=90), 0)]
    clock.advance(90)
    budgeted_site.deliver()

    assert budgeted_site.received() == ["1", "2"]
    assert audit(runtime).differences == ()


def test_hours_of_a_target(budgeted_site: BudgetedSite, order: Order, clock: Any) -> None:
    """On a Sunday a delivery waits for Monday morning in Berlin; while the window is open it is sent immediately."""
    window = "deliver_between: {time_zone: Europe/Berlin, hours: 08:00-18:00, weekdays: [mon, tue, wed, thu, fri]}"
    runtime = budgeted_site.begin(window, order(1))

    budgeted_site.deliver()
    monday = datetime(2026, 3, 2, 7, tzinfo=UTC)
    assert budgeted_site.waiting() == [(1, monday, 0)]
    clock.now = monday
    budgeted_site.deliver()
    budgeted_site.site.publish(order(2), key="k")
    budgeted_site.deliver()

    assert budgeted_site.received() == ["1", "2"]
    assert budgeted_site.waiting() == []
    assert audit(runtime).differences == ()


def test_a_time_of_its_own_and_hours(budgeted_site: BudgetedSite, order: Order, clock: Any) -> None:
    """With a time and hours, a delivery is sent at the first opening from that time on."""
    fields = "not_before: 3h, deliver_between: {time_zone: UTC, hours: 10:00-14:00}"
    budgeted_site.begin(fields, order(1))

    budgeted_site.deliver()

    assert budgeted_site.waiting() == [(1, datetime(2026, 3, 2, 10, tzinfo=UTC), 0)]


def test_a_retry_waits_for_the_next_opening(budgeted_site: BudgetedSite, order: Order, clock: Any) -> None:
    """A retry that would be due after the window closes waits for the next morning."""
    (budgeted_site.site.folder / "LINES").mkdir(parents=True)
    fields = f"deliver_between: {{time_zone: UTC, hours: 08:00-12:30}}, {RETRIES.replace('AGE', '3d')}"
    runtime = budgeted_site.begin(fields, order(1))

    budgeted_site.deliver()
    tomorrow = datetime(2026, 3, 2, 8, tzinfo=UTC)
    ((_, due_at, attempts),) = budgeted_site.waiting()
    assert (due_at, attempts) == (tomorrow, 1)
    (budgeted_site.site.folder / "LINES").rmdir()
    clock.now = due_at
    budgeted_site.deliver()

    assert budgeted_site.received() == ["1"]
    assert audit(runtime).differences == ()


def test_a_window_that_closed_since_route(budgeted_site: BudgetedSite, order: Order, clock: Any, site: Any) -> None:
    """A push after the window has closed sends nothing and counts no attempt; the delivery waits for the opening."""
    clock.now = NOON + timedelta(minutes=9, seconds=50)
    budgeted_site.begin("deliver_between: {time_zone: UTC, hours: 08:00-12:10}", order(1))
    runtime, batch_id = buffered(site)
    assert len(routed(runtime, batch_id)) == 1
    clock.advance(10)

    for chunk in runtime.ledger.chunks.list_for_batch(batch_id):
        push(runtime, batch_id, chunk.chunk_id)
    write_dead_letters(runtime, batch_id)
    schedule_retries(runtime, batch_id)
    assert commit(runtime, batch_id)

    assert budgeted_site.received() == []
    assert budgeted_site.received("OTHERS") == ["1"]
    assert budgeted_site.waiting() == [(1, datetime(2026, 3, 2, 8, tzinfo=UTC), 0)]
    clock.now = datetime(2026, 3, 2, 8, tzinfo=UTC)
    budgeted_site.deliver()
    assert budgeted_site.received() == ["1"]
    assert audit(runtime).differences == ()


def test_age_counts_from_when_it_could_first_be_sent(budgeted_site: BudgetedSite, order: Order, clock: Any) -> None:
    """A maximum age of an hour does not include two hours of waiting, but closed hours after the first attempt."""
    (budgeted_site.site.folder / "LINES").mkdir(parents=True)
    fields = f"not_before: 2h, deliver_between: {{time_zone: UTC, hours: 08:00-14:30}}, {RETRIES.replace('AGE', '90m')}"
    runtime = budgeted_site.begin(fields, order(1))

    budgeted_site.deliver()
    assert budgeted_site.waiting() == [(1, NOON + timedelta(hours=2), 0)]
    clock.now = NOON + timedelta(hours=2)
    budgeted_site.deliver()

    (record,) = dead_letters(runtime, whole=True)
    assert (record["reason"], len(record["attempts"])) == ("maximum_event_age", 1)
    assert audit(runtime).differences == ()


def test_hours_that_change_in_the_file_count_at_once(budgeted_site: BudgetedSite, order: Order, clock: Any) -> None:
    """A delivery that is due outside the new hours is deferred again without an attempt."""
    runtime = budgeted_site.begin("deliver_between: {time_zone: UTC, hours: 14:00-15:00}", order(1))
    budgeted_site.deliver()
    budgeted_site.write_rules("deliver_between: {time_zone: UTC, hours: 16:00-17:00}")
    clock.now = NOON + timedelta(hours=2)

    budgeted_site.deliver()
    assert budgeted_site.waiting() == [(1, NOON + timedelta(hours=4), 0)]
    clock.now = NOON + timedelta(hours=4)
    budgeted_site.deliver()

    assert budgeted_site.received() == ["1"]
    assert audit(runtime).differences == ()


def test_a_budgeted_rule_waits_too(budgeted_site: BudgetedSite, order: Order, clock: Any) -> None:
    """A budgeted rule's deliveries, which another part of route makes, wait and fail in the same way."""
    transform = "transform: {form: JSONATA, value: '{\"id\": id}'}"
    runtime = budgeted_site.begin(
        f"not_before: $.data.at, {transform}", at(order, 1, "2026-03-01T13:00:00Z"), order(2), at(order, 3, "soon")
    )

    budgeted_site.deliver()
    assert budgeted_site.received() == ["2"]
    assert budgeted_site.waiting() == [(1, NOON + timedelta(hours=1), 0)]
    clock.advance(3600)
    budgeted_site.deliver()

    assert budgeted_site.received() == ["2", "1"]
    assert [(row["event_id"], row["reason"]) for row in dead_letters(runtime)] == [("3", "transform_failed")]
    assert audit(runtime).differences == ()


def test_pending_deliveries_are_cut_into_pieces_by_due_time(
    budgeted_site: BudgetedSite, order: Order, site: Any
) -> None:
    """Pieces of pending deliveries are sorted by time, so that few have the first due ones; no row is lost."""
    hours = [5, 1, 4, 2, 3]
    times = [f"2026-03-01T{12 + hour}:00:00Z" for hour in hours]
    budgeted_site.begin(
        "not_before: $.data.at", *(at(order, hour, time) for hour, time in zip(hours, times, strict=True))
    )
    runtime, batch_id = buffered(site, chunk_max_deliveries=2)

    routed(runtime, batch_id)

    (file,) = runtime.ledger.files.list_for_batch(batch_id, "delivery")
    assert isinstance(file.detail, Routed)
    pieces = [piece for piece in file.detail.pieces if piece.rule == "waiting"]
    rows = [row for row in deliveries(runtime, batch_id) if row["rule"] == "waiting"]
    assert [row["not_before"].hour - 12 for row in rows] == hours
    assert [piece.count for piece in pieces] == [2, 2, 1]
    assert [datetime.fromtimestamp((piece.not_before or 0) / 1e6, UTC).hour - 12 for piece in pieces] == [1, 3, 5]
