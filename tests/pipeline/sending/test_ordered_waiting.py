"""Ordered targets whose deliveries wait for a time or a window: waiting blocks a key like a failure, without attempt.

The clock shows noon of tomorrow at first, and runs.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pipeline.delivering import RunningClock, Sending, rules
from pipeline.ordering import Recorder, keyed, ordered, publish
from stored import dead_letters

from eventbridge.control.release import deliveries_on_hold, release_rule
from eventbridge.pipeline.commit.stage import commit
from eventbridge.repair.audit import audit

#: Ahead of the machine's clock, by which targets see that a push is over.
NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) + timedelta(days=1)
TOMORROW = NOON + timedelta(hours=20)
HOUR = timedelta(hours=1)
BY_CUSTOMER = "ordering_key: $.data.customer"
AT = f"{BY_CUSTOMER}, not_before: $.data.at"
HOURS = "deliver_between: {time_zone: UTC, hours: 08:00-12:30}"
NONE = "errors_tolerance: none"


@pytest.fixture
def clock() -> RunningClock:
    """A clock that shows noon now."""
    clock = RunningClock()
    move_to(clock, NOON)
    return clock


def move_to(clock: RunningClock, time: datetime) -> None:
    """Put the clock forward to a time."""
    clock.ahead += time - clock()


def waiting(sending: Sending) -> list[tuple[datetime, int, int]]:
    """Return due time, attempts and number of scheduled deliveries, the first due first."""
    rows = [row for row in sending.runtime.ledger.pending.find("scheduled") if row.taken_by is None]
    return sorted((row.due_at, row.attempts, row.count) for row in rows)


def test_a_delivery_that_waits_blocks_its_key_and_no_other(
    sending: Sending, clock: RunningClock, recorder: Recorder
) -> None:
    """Its time is in an hour; until then nothing behind it goes, also of later batches, and everything else does."""
    times = {("a", 1): NOON + HOUR}
    publish(sending, *[keyed(n, c, times.get((c, n))) for n in range(4) for c in "ab"])
    runtime = sending.begin(crm=ordered(AT))
    sending.deliver()
    publish(sending, keyed(4, "a"), keyed(4, "b"))
    sending.deliver()
    move_to(clock, NOON + HOUR - timedelta(seconds=20))
    sending.deliver()
    assert recorder.got == {"a": [0], "b": [0, 1, 2, 3, 4]}
    assert len(recorder.asked) == 6
    assert {row.attempts for row in runtime.ledger.pending.find()} == {0}

    move_to(clock, NOON + HOUR)
    sending.deliver()

    assert recorder.got["a"] == [0, 1, 2, 3, 4]
    assert audit(runtime).differences == ()
    assert audit(runtime).deliveries["orders/crm"] == {"matched": 10, "delivered": 10, "dead_lettered": 0, "pending": 0}


def test_later_pieces_do_not_overtake_a_waiting_row(sending: Sending, clock: RunningClock, recorder: Recorder) -> None:
    """With pieces of one row the one that waits is not handed out, and nothing of its shard behind it is."""
    publish(sending, keyed(0, "a", NOON + HOUR), keyed(0, "b"), keyed(1, "a"), keyed(1, "b"))
    sending.begin(settings={"chunk_max_deliveries": 1}, crm=ordered(AT))
    sending.deliver()
    assert recorder.got == {"b": [0, 1]}

    move_to(clock, NOON + HOUR)
    sending.deliver()

    assert recorder.got == {"a": [0, 1], "b": [0, 1]}
    assert audit(sending.runtime).differences == ()


def test_a_budgeted_rule_keeps_its_order_too(sending: Sending, clock: RunningClock, recorder: Recorder) -> None:
    """Its deliveries are made by another part of route."""
    transform = "transform: {form: JSONATA, value: data.number}"
    publish(sending, keyed(0, "a", NOON + HOUR), keyed(1, "a"), keyed(2, "b"))
    recorder.plain = True
    sending.begin(crm=ordered(f"{AT}, {transform}"))
    sending.deliver()
    assert recorder.got["plain"] == [b"2"]

    move_to(clock, NOON + HOUR)
    sending.deliver()

    assert recorder.got["plain"] == [b"2", b"0", b"1"]


def test_a_retry_waits_for_the_next_opening_and_so_does_its_key(
    sending: Sending, clock: RunningClock, recorder: Recorder
) -> None:
    """It fails at noon and is due at one, when the hours are over: it, and what is behind it, go the next morning."""
    publish(sending, *[keyed(n, c) for n in range(3) for c in "ab"])
    runtime = sending.begin(crm=ordered(f"{BY_CUSTOMER}, {HOURS}"))
    recorder.refused["a", 1] = 503
    sending.deliver()
    assert recorder.got == {"a": [0], "b": [0, 1, 2]}
    assert waiting(sending) == [(TOMORROW, 0, 1), (TOMORROW, 1, 1)]
    recorder.refused.clear()
    move_to(clock, NOON + 2 * HOUR)
    sending.deliver()
    assert len(recorder.asked) == 5

    move_to(clock, TOMORROW)
    sending.deliver()

    assert recorder.got["a"] == [0, 1, 2]
    assert audit(runtime).differences == ()


def test_hours_that_end_after_route_keep_what_was_handed_out(
    sending: Sending, clock: RunningClock, recorder: Recorder
) -> None:
    """The push that comes too late sends nothing; all is pending untried until the opening, in its order."""
    move_to(clock, NOON + HOUR / 2 - timedelta(seconds=10))
    publish(sending, *[keyed(n, c) for n in range(3) for c in "ab"])
    batch = sending.routed(crm=ordered(f"{BY_CUSTOMER}, {HOURS}"))
    assert any(chunk.handed_out for chunk in sending.runtime.ledger.chunks.list_for_batch(batch.batch_id))
    move_to(clock, NOON + HOUR / 2)
    sending.push(batch)
    sending.settle(batch)
    assert commit(sending.runtime, batch.batch_id)
    sending.deliver()
    assert recorder.asked == []
    assert {(due_at, attempts) for due_at, attempts, _ in waiting(sending)} == {(TOMORROW, 0)}

    move_to(clock, TOMORROW)
    sending.deliver()

    assert recorder.got == {"a": [0, 1, 2], "b": [0, 1, 2]}
    assert audit(sending.runtime).differences == ()


def test_without_tolerance_the_whole_target_waits(sending: Sending, clock: RunningClock, recorder: Recorder) -> None:
    """All is of one key: what lies behind the one that waits, whosever it is, comes after it."""
    times = {("a", 1): NOON + HOUR}
    publish(sending, *[keyed(n, "a", times.get(("a", n))) for n in range(3)])
    runtime = sending.begin(strict=ordered(f"{NONE}, not_before: $.data.at"), easy=ordered(AT.split(", ")[1]))
    sending.deliver()
    publish(sending, keyed(3, "a"))
    sending.deliver()
    strict = audit(runtime).deliveries["orders/strict"]
    assert (strict["delivered"], strict["pending"]) == (1, 3)
    assert audit(runtime).deliveries["orders/easy"]["delivered"] == 3

    move_to(clock, NOON + HOUR)
    sending.deliver()

    assert audit(runtime).deliveries["orders/strict"] == {
        "matched": 4,
        "delivered": 4,
        "dead_lettered": 0,
        "pending": 0,
    }
    assert deliveries_on_hold(runtime, "orders") == {}


def test_a_released_delivery_waits_for_the_delivery_hours(
    sending: Sending, clock: RunningClock, recorder: Recorder
) -> None:
    """Released outside the window, it is deferred once and tried in the morning: the release is kept."""
    publish(sending, *[keyed(n, "a") for n in range(3)])
    runtime = sending.begin(strict=ordered(f"{NONE}, {HOURS}"))
    recorder.refused["a", 1] = 400
    sending.deliver()
    assert recorder.asked == [("a", 0), ("a", 1)]
    move_to(clock, NOON + HOUR)
    recorder.refused.clear()
    release_rule(runtime, "orders")
    sending.deliver()
    before = len(runtime.ledger.batches.find(limit=None))
    sending.deliver()
    assert len(runtime.ledger.batches.find(limit=None)) == before, "batch after batch defers it"
    assert recorder.asked == [("a", 0), ("a", 1)]
    assert [row.hold_reason for row in runtime.ledger.order.rows_on_hold("orders") if row.due_at == TOMORROW] == [
        "released"
    ]

    move_to(clock, TOMORROW)
    sending.deliver()

    assert recorder.got["a"] == [0, 1, 2]
    assert audit(runtime).differences == ()


def test_a_skipped_delivery_needs_no_hours(sending: Sending, clock: RunningClock, recorder: Recorder) -> None:
    """It is a dead letter at once, and what was behind it comes in the morning."""
    publish(sending, *[keyed(n, "a") for n in range(3)])
    runtime = sending.begin(strict=ordered(f"{NONE}, {HOURS}"))
    recorder.refused["a", 1] = 400
    sending.deliver()
    (held,) = deliveries_on_hold(runtime, "orders").values()
    move_to(clock, NOON + HOUR)
    release_rule(runtime, "orders", held.delivery_id)
    sending.deliver()
    assert [record["reason"] for record in dead_letters(runtime)] == ["non_retryable"]
    assert recorder.got["a"] == [0]

    move_to(clock, TOMORROW)
    sending.deliver()

    assert recorder.got["a"] == [0, 2]
    assert audit(runtime).differences == ()


def test_rows_behind_a_waiting_row_do_not_age(sending: Sending, clock: RunningClock, recorder: Recorder) -> None:
    """An hour of age is enough for one that waits three, for what came with it and for what came later."""
    retry = (
        "retry: {policy: custom, max_retries: 3, initial_delay: 1h, multiplier: 1, "
        "max_delay: 1h, maximum_event_age: 1h}"
    )
    publish(sending, keyed(0, "a", NOON + 3 * HOUR), keyed(1, "a"))
    runtime = sending.begin(crm=ordered(AT, retry))
    sending.deliver()
    publish(sending, keyed(2, "a"))
    sending.deliver()
    clock.advance(2)
    sending.deliver()
    assert recorder.asked == []

    move_to(clock, NOON + 3 * HOUR)
    sending.deliver()

    assert recorder.got["a"] == [0, 1, 2]
    assert audit(runtime).deliveries["orders/crm"] == {"matched": 3, "delivered": 3, "dead_lettered": 0, "pending": 0}


def test_hours_that_change_in_the_file_count_at_once(sending: Sending, clock: RunningClock, recorder: Recorder) -> None:
    """What falls due while the new hours are over is deferred again, and none of it is tried or overtaken."""
    publish(sending, *[keyed(n, "a") for n in range(3)])
    sending.begin(crm=ordered(f"{BY_CUSTOMER}, deliver_between: {{time_zone: UTC, hours: 14:00-15:00}}"))
    sending.deliver()
    sending.write(rules({"crm": ordered(f"{BY_CUSTOMER}, deliver_between: {{time_zone: UTC, hours: 16:00-17:00}}")}))
    move_to(clock, NOON + 2 * HOUR)
    sending.deliver()
    assert recorder.asked == []

    move_to(clock, NOON + 4 * HOUR)
    sending.deliver()

    assert recorder.got["a"] == [0, 1, 2]
    assert audit(sending.runtime).differences == ()
