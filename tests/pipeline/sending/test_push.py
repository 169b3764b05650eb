"""The stage push, against a real receiver, records every response before it counts."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta

import pytest
from pipeline.delivering import RunningClock, Sending, http, routed, segment_rows, settled

from eventbridge import fault_points
from eventbridge.airflow.push import task_stop
from eventbridge.delivery.push import push
from eventbridge.errors import EventBridgeError, StoreError
from eventbridge.event.ids import delivery_id_text
from eventbridge.model.outcome import Response
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.settlement import read_settled
from eventbridge.repair.audit import audit
from eventbridge.runtime.stop import Stop
from eventbridge.targets.http.engine import HttpEngine
from eventbridge.targets.protocol import Request
from eventbridge.testing.targets import InMemoryTarget, accept
from eventbridge.views.chunks import chunk_failures, chunk_statuses


def test_push_delivers_every_row_of_its_chunk_once(sending: Sending) -> None:
    """Each delivery reaches its target once, under its delivery id, and its outcome is in a recorded segment."""
    batch = sending.routed(30, crm="/healthy/crm")
    runtime = sending.runtime

    report = push(runtime, batch.batch_id, 0)

    rows = segment_rows(runtime, batch.batch_id)
    assert (report.claimed, report.delivered, report.left) == (True, 30, 0)
    assert {row["outcome"] for row in rows} == {"delivered"}
    assert len({request["webhook_id"] for request in sending.requests()}) == 30
    assert runtime.ledger.chunks.get(batch.batch_id, 0).state == "completed"


def test_deliveries_sent_twice_after_a_crash_are_bounded(sending: Sending) -> None:
    """With segments of four responses and one request in flight, only the last few responses are not in a segment.

    There may be more than five, because responses arrive while a segment is written, here 20 per second.
    """
    batch = sending.routed(60, settings={"segment_responses": 4}, crm=http("/delay/50", max_in_flight=1))
    runtime, unrecorded = sending.site.works[-1], [0]

    def count(point: str) -> None:
        if point == "target.send":
            recorded = sum(file.rows for file in runtime.ledger.files.list_for_batch(batch.batch_id, "outcome"))
            unrecorded.append(unrecorded[0] - recorded)
            unrecorded[0] += 1

    fault_points.install(count)
    push(runtime, batch.batch_id, 0)

    assert unrecorded[0] == 60
    assert max(unrecorded[1:]) < 30


def test_a_completed_chunk_is_not_pushed_again(sending: Sending) -> None:
    """A second push of a completed chunk sends nothing."""
    batch = sending.routed(1, crm="/healthy/crm")
    runtime = sending.runtime
    push(runtime, batch.batch_id, 0)

    report = push(runtime, batch.batch_id, 0)

    assert not report.claimed
    assert len(sending.requests()) == 1


def test_push_after_the_deadline_returns_at_once(sending: Sending, clock: RunningClock) -> None:
    """A push that starts after the batch's deadline sends nothing and claims nothing."""
    batch = sending.routed(1, crm="/healthy/crm")
    runtime = sending.runtime
    clock.advance(61)

    report = push(runtime, batch.batch_id, 0)

    assert not report.claimed
    assert sending.requests() == []
    assert runtime.ledger.chunks.get(batch.batch_id, 0).state == "new"


def test_push_after_settlement_sends_nothing(sending: Sending) -> None:
    """Once a batch is settling its chunks cannot be claimed."""
    batch = sending.routed(1, crm="/healthy/crm")
    runtime = sending.runtime
    write_dead_letters(runtime, batch.batch_id)

    report = push(runtime, batch.batch_id, 0)

    assert not report.claimed
    assert sending.requests() == []


def test_a_second_push_skips_what_the_first_one_settled(sending: Sending) -> None:
    """A push that dies leaves segments; the next one sends only deliveries that these do not contain."""
    batch = sending.routed(20, settings={"segment_responses": 5}, crm="/healthy/crm")
    runtime = sending.runtime
    fault_points.install(_failing("store.put", at=3))
    with pytest.raises(StoreError):
        push(runtime, batch.batch_id, 0)
    fault_points.install(None)
    shown = len(segment_rows(runtime, batch.batch_id))

    push(runtime, batch.batch_id, 0)

    requests = [request["webhook_id"] for request in sending.requests()]
    assert shown >= 10
    assert len(set(requests)) == 20
    assert len(requests) <= 20 + (20 - shown)
    assert runtime.ledger.chunks.get(batch.batch_id, 0).claim == 2


def test_a_push_that_lost_its_claim_stops_and_records_what_it_sent(sending: Sending) -> None:
    """If a push stands still until another one has its claim, it stops, and each of its requests is recorded."""
    batch = sending.routed(100, settings={"segment_interval": 0.1}, crm=http("/slow/crm", max_in_flight=1))
    runtime = sending.runtime
    reports = []
    thread = threading.Thread(target=lambda: reports.append(push(runtime, batch.batch_id, 0)))
    thread.start()
    _until(lambda: len(sending.requests()) >= 2)
    (own,) = runtime.ledger.chunks.live_claims(batch.batch_id)
    assert runtime.ledger.chunks.release_claim(batch.batch_id, own)
    assert runtime.ledger.chunks.claim(batch.batch_id, 0, "another process") is not None
    thread.join(60)

    assert not thread.is_alive()
    requests = [request["webhook_id"] for request in sending.requests()]
    recorded = [delivery_id_text(row["delivery_id"]) for row in segment_rows(runtime, batch.batch_id) if row["sent"]]
    assert 2 <= len(requests) < 100
    assert sorted(recorded) == sorted(requests)
    assert runtime.ledger.chunks.get(batch.batch_id, 0).claim == 2


def test_two_pushes_of_one_chunk_take_turns(sending: Sending) -> None:
    """The second push waits until the first has ended and finds nothing to do; no delivery is repeated."""
    batch = sending.routed(20, crm=http("/delay/100", max_in_flight=2))
    with ThreadPoolExecutor(2) as pool:
        pushes = [pool.submit(push, sending.site.reopen(), batch.batch_id, 0) for _ in range(2)]
        reports = [each.result() for each in pushes]

    assert sorted((report.claimed, report.delivered) for report in reports) == [(False, 0), (True, 20)]
    assert len(sending.requests()) == 20
    assert sending.runtime.ledger.chunks.get(batch.batch_id, 0).claim == 1


def test_a_push_follows_one_that_the_ledger_no_longer_hears_of(sending: Sending, clock: RunningClock) -> None:
    """The claim of a push whose host has failed expires after six seconds, and not earlier."""
    batch = sending.routed(5, crm="/healthy/crm")
    ledger = sending.runtime.ledger
    assert ledger.chunks.claim(batch.batch_id, 0, "another-host:17", ledger.now() + timedelta(seconds=6)) is not None
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(push, sending.runtime, batch.batch_id, 0)
        assert wait([following], timeout=1.0).not_done
        assert sending.requests() == []
        clock.advance(6)
        assert following.result(60).delivered == 5


def test_a_push_that_fails_does_not_stop_those_beside_it(sending: Sending) -> None:
    """A failing push does not set the event that stops all pushes; only an operator or a signal sets it."""
    batch = sending.routed(20, settings={"segment_responses": 5}, crm="/healthy/crm")
    stop = Stop()
    fault_points.install(_failing("store.put", at=3))
    with pytest.raises(StoreError):
        push(sending.runtime, batch.batch_id, 0, stop)

    assert not stop.is_set()


def test_a_batch_is_not_settled_while_a_push_of_it_is_at_work(sending: Sending) -> None:
    """A batch is not settled during a push, because requests in flight would become pending and be repeated."""
    batch = sending.routed(20, crm=http("/delay/100", max_in_flight=2))
    runtime = sending.site.reopen()
    with ThreadPoolExecutor(1) as pool:
        pushed = pool.submit(push, runtime, batch.batch_id, 0)
        _until(lambda: len(sending.requests()) >= 2)
        write_dead_letters(sending.runtime, batch.batch_id)

    assert pushed.result().delivered == 20
    assert Counter(row.status for row in read_settled(runtime, batch.batch_id)) == {"delivered": 20}


def test_a_hanging_target_delays_no_other_target_of_its_chunk(sending: Sending) -> None:
    """A chunk's healthy target gets everything while the hanging one spends the budget and is degraded."""
    batch = sending.routed(200, settings={"push_timeout": 2}, crm="/healthy/crm", stuck="/hang/stuck")
    runtime = sending.runtime
    chunks = runtime.ledger.chunks.list_for_batch(batch.batch_id)

    started = time.monotonic()
    for chunk in chunks:
        push(runtime, batch.batch_id, chunk.chunk_id)

    assert time.monotonic() - started < 2 * len(chunks) + 3
    assert sum(request["path"] == "/healthy/crm" for request in sending.requests()) == 200
    assert runtime.ledger.targets.statuses()["orders", "stuck"].state == "degraded"
    assert ("orders", "crm") not in runtime.ledger.targets.statuses()


def test_a_push_that_is_stopped_starts_nothing_more(sending: Sending) -> None:
    """Requests in flight get their responses, and unsent deliveries are settled as unknown."""
    batch = sending.routed(50, crm=http("/slow/crm", max_in_flight=1))
    runtime = sending.runtime
    stop = Stop()
    thread = threading.Thread(target=push, args=(runtime, batch.batch_id, 0, stop))
    thread.start()
    _until(lambda: len(sending.requests()) >= 2)
    sent = len(sending.requests())
    stop.set()
    thread.join(60)

    assert not thread.is_alive()
    assert len(sending.requests()) - sent <= 1, "one that began while the stop was asked for"
    assert runtime.ledger.chunks.get(batch.batch_id, 0).state == "timeout"
    write_dead_letters(runtime, batch.batch_id)
    found = Counter(row.status for row in settled(runtime, batch.batch_id)["crm"])
    assert found == {"delivered": len(sending.requests()), "unknown": 50 - len(sending.requests())}


def test_a_killed_push_task_does_not_wait_for_a_target_that_hangs(sending: Sending) -> None:
    """Airflow kills a task 5 s after it asked it to stop: by then the push has recorded what it sent."""
    batch = sending.routed(5, stuck=http("/hang/stuck", timeout="30s"))
    runtime = sending.runtime
    stop = task_stop()
    thread = threading.Thread(target=push, args=(runtime, batch.batch_id, 0, stop))
    thread.start()
    _until(lambda: len(sending.requests()) >= 1)
    began = time.monotonic()
    stop.set()
    thread.join(60)

    assert 2 < time.monotonic() - began < 5
    assert runtime.ledger.chunks.get(batch.batch_id, 0).state == "timeout"
    assert {row["reason"] for row in segment_rows(runtime, batch.batch_id) if row["sent"]} == {"Interrupted"}


@pytest.mark.parametrize("by_key", [{}, {"ordering_key": "$.source"}])
def test_a_request_in_flight_at_an_immediate_stop_is_recorded_as_sent(
    sending: Sending, clock: RunningClock, by_key: dict[str, str]
) -> None:
    """Its attempt counts without a response; it is repeated after its timeout, and not by the next push."""
    batch = sending.routed(3, stuck=http("/hang/stuck", timeout="30s", max_in_flight=2, **by_key))
    runtime = sending.runtime
    in_flight = 1 if by_key else 2
    stop = Stop()
    thread = threading.Thread(target=push, args=(runtime, batch.batch_id, 0, stop))
    thread.start()
    _until(lambda: len(sending.requests()) == in_flight)
    stop.set_at_once()
    thread.join(10)
    sent_at = clock()

    rows = [row for row in segment_rows(runtime, batch.batch_id) if row["sent"]]
    assert [(row["outcome"], row["reason"], row["attempt"]) for row in rows] == [
        ("retry_scheduled", "Interrupted", 1)
    ] * in_flight
    assert {row["error"] for row in rows} == {"the push was stopped before a response came"}
    assert all(row["due_at"] - row["started_at"] == timedelta(seconds=30) for row in rows)
    assert all(row["due_at"] > sent_at + timedelta(seconds=15) for row in rows)
    push(runtime, batch.batch_id, 0, stop)
    sending.settle(batch)
    assert (
        sorted(row.attempts for row in settled(runtime, batch.batch_id)["stuck"])
        == [0] * (3 - in_flight) + [1] * in_flight
    )
    assert len(sending.requests()) == in_flight


@pytest.mark.parametrize(("at_once", "timeout"), [(True, 30), (False, 2)])
def test_a_request_of_a_thread_that_ignores_the_stop_is_recorded_as_sent(
    sending: Sending, monkeypatch: pytest.MonkeyPatch, at_once: bool, timeout: int
) -> None:
    """If a client library blocks its thread forever, the push waits for the timeout, or ends immediately."""
    asked, released = threading.Event(), threading.Event()

    def hold(request: Request) -> Response:
        asked.set()
        released.wait(60)
        return accept(request)

    monkeypatch.setattr("eventbridge.targets.open.open_target", lambda *_: InMemoryTarget(hold))
    batch = sending.routed(3, stuck=http("/never/asked", timeout=f"{timeout}s"))
    runtime = sending.runtime
    stop = Stop()
    thread = threading.Thread(target=push, args=(runtime, batch.batch_id, 0, stop))
    thread.start()
    try:
        assert asked.wait(30)
        (stop.set_at_once if at_once else stop.set)()
        thread.join(20)
        assert not thread.is_alive()
        rows = segment_rows(runtime, batch.batch_id)
        found = [(row["sent"], row["outcome"], row["reason"], row["attempt"]) for row in rows]
        assert found == [(True, "retry_scheduled", "Interrupted", 1)]
        assert rows[0]["due_at"] - rows[0]["started_at"] >= timedelta(seconds=timeout)
    finally:
        released.set()


def test_a_retry_that_falls_due_within_the_budget_is_made_by_the_push(sending: Sending) -> None:
    """Two quick refusals are retried without using the ledger, and each attempt is recorded."""
    policy = "{policy: custom, max_retries: 5, initial_delay: 100ms, multiplier: 1, max_delay: 100ms}"
    batch = sending.routed(1, crm=http("/flaky/crm", retry=policy))
    runtime = sending.runtime

    report = push(runtime, batch.batch_id, 0)

    rows = segment_rows(runtime, batch.batch_id)
    assert report.delivered == 1
    assert [(row["attempt"], row["outcome"]) for row in sorted(rows, key=lambda row: row["attempt"])] == [
        (1, "retry_scheduled"),
        (2, "retry_scheduled"),
        (3, "delivered"),
    ]


def test_a_retry_that_is_seconds_away_is_left_to_the_slow_lane(sending: Sending) -> None:
    """A push that would only wait 8 s for a retry ends, so that the other targets of its batch need not wait."""
    policy = "{policy: custom, max_retries: 5, initial_delay: 8s, multiplier: 1, max_delay: 8s}"
    batch = sending.routed(1, crm=http("/status/500", retry=policy))
    runtime = sending.runtime

    started = time.monotonic()
    report = push(runtime, batch.batch_id, 0)

    assert time.monotonic() - started < 6
    assert (report.retried, report.left) == (1, 1)
    assert len(sending.requests()) == 1
    assert runtime.ledger.targets.statuses()["orders", "crm"].state == "ok"


def test_a_target_without_a_response_within_the_budget_is_degraded(sending: Sending) -> None:
    """A target without a response is degraded even if all its deliveries were in flight when the budget ended."""
    batch = sending.routed(2, settings={"push_timeout": 2}, stuck=http("/hang/stuck", timeout="30s"))
    runtime = sending.runtime

    push(runtime, batch.batch_id, 0)

    stuck = runtime.ledger.targets.statuses()["orders", "stuck"]
    assert (stuck.state, stuck.slow, stuck.reason) == ("degraded", True, "2 requests had no response in time")
    rows = segment_rows(runtime, batch.batch_id)
    assert {(row["outcome"], row["reason"], row["sent"]) for row in rows} == {("retry_scheduled", "Interrupted", True)}


def test_a_response_410_disables_the_target_and_keeps_the_rest(sending: Sending) -> None:
    """The first 410 is a dead letter, the target is disabled, and what was not sent is on hold."""
    batch = sending.routed(10, crm=http("/gone/crm", max_in_flight=1))
    runtime = sending.runtime

    push(runtime, batch.batch_id, 0)

    write_dead_letters(runtime, batch.batch_id)
    rows = settled(runtime, batch.batch_id)["crm"]
    assert runtime.ledger.targets.statuses()["orders", "crm"].state == "disabled"
    assert 1 <= sum(row.reason == "target_gone" for row in rows) <= 2
    assert {row.hold_reason for row in rows if row.status == "unknown"} == {"target disabled"}


def test_one_target_that_cannot_be_opened_fails_the_push_after_the_others_are_served(sending: Sending) -> None:
    """An undefined connection fails the task after the other target has received its deliveries."""
    broken = http("/healthy/x", connection="undefined_connection")
    batch = sending.routed(10, broken=broken, crm="/healthy/crm")
    runtime = sending.runtime

    with pytest.raises(EventBridgeError, match="undefined_connection"):
        push(runtime, batch.batch_id, 0)

    assert sum(request["path"] == "/healthy/crm" for request in sending.requests()) == 10
    assert runtime.ledger.chunks.get(batch.batch_id, 0).state == "error"


def test_a_push_does_not_wait_for_a_target_that_cannot_be_let_go(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push does not wait for libcurl to close, which a silent name server can delay for a long time."""
    responded, closed, close = threading.Event(), threading.Semaphore(0), HttpEngine.close

    def close_late(engine: HttpEngine) -> None:
        responded.wait(20.0)
        close(engine)
        closed.release()

    monkeypatch.setattr(HttpEngine, "close", close_late)
    batch = sending.routed(3, crm="/healthy/crm", other="/healthy/other")

    report = push(sending.runtime, batch.batch_id, 0)

    assert not closed.acquire(blocking=False)
    assert (report.delivered, sending.runtime.ledger.chunks.get(batch.batch_id, 0).state) == (6, "completed")
    responded.set()
    assert closed.acquire(timeout=10.0)


def test_a_target_that_cannot_be_opened_is_retried_after_a_pause(sending: Sending, clock: RunningClock) -> None:
    """A target that cannot be opened is retried every half minute without an end, and no attempt is counted."""
    runtime = sending.begin(3, broken=http("/healthy/x", connection="undefined_connection"))
    batch = routed(runtime)
    with pytest.raises(EventBridgeError):
        sending.push(batch)
    sending.settle(batch)

    (pending,) = runtime.ledger.pending.counts()
    assert (pending.reason, pending.count) == ("unknown", 3)
    assert 25 < (pending.next_due_at - clock()).total_seconds() <= 30
    sending.rules(broken="/healthy/x")
    clock.advance(31)
    sending.deliver()
    assert audit(runtime).deliveries["orders/broken"]["delivered"] == 3


def test_a_delivery_in_flight_at_the_end_of_the_budget_is_sent_again_under_its_id(
    sending: Sending, clock: RunningClock
) -> None:
    """Recorded as sent, and sent again after its timeout: the receiver has each id twice, and everything is
    reconciled.
    """
    runtime = sending.begin(3, settings={"push_timeout": 1}, crm=http("/hang/crm", timeout="30s", max_in_flight=2))
    batch_id = sending.deliver_batch()
    assert batch_id is not None
    first = [request["webhook_id"] for request in sending.requests()]
    rows = settled(runtime, batch_id)["crm"]
    found = sorted((row.status, row.reason or "", row.attempts, row.lane) for row in rows)
    assert found == [("retry_scheduled", "Interrupted", 1, "slow")] * 2 + [("unknown", "", 0, "slow")]
    assert all(row.due_at > clock() + timedelta(seconds=15) for row in rows if row.due_at and row.attempts)
    assert runtime.ledger.chunks.get(batch_id, 0).state == "timeout"
    sending.rules(crm="/healthy/crm")
    clock.advance(31)

    sending.deliver()

    ids = Counter(request["webhook_id"] for request in sending.requests())
    assert {name: ids[name] for name in first} == dict.fromkeys(first, 2)
    assert len(ids) == 3
    assert audit(runtime).deliveries["orders/crm"]["delivered"] == 3
    assert audit(runtime).differences == ()


def test_chunks_are_shown_with_what_became_of_them(sending: Sending) -> None:
    """Each chunk is shown with its state, source, duration and counts, and failures with the response and exception."""
    broken = http("/healthy/x", connection="undefined_connection")
    runtime = sending.begin(4, crm="/status/503", broken=broken)
    with pytest.raises(EventBridgeError):
        sending.push(routed(runtime))

    (chunk,) = chunk_statuses(runtime, batches=5)
    (failure,) = chunk_failures(runtime, limit=5)

    assert (chunk.state, chunk.kind, chunk.source, chunk.claim) == ("error", "normal", "orders", 1)
    assert (chunk.rows, chunk.succeeded, chunk.failed) == (8, 0, 4)
    assert chunk.targets == ("orders/broken", "orders/crm")
    assert chunk.seconds is not None
    assert chunk.seconds >= 0
    assert "undefined_connection" in chunk.error
    assert failure.error == chunk.error
    assert failure.last_failure.startswith("orders/crm: HTTP 503")


def _failing(point: str, *, at: int) -> Callable[[str], None]:
    count = 0

    def hook(reached: str) -> None:
        nonlocal count
        count += reached == point
        if reached == point and count == at:
            raise StoreError("the disk is full")

    return hook


def _until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.01)
