"""`batch` sends several deliveries in one request, and resends only those that the target did not accept."""

from __future__ import annotations

import urllib.request
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pipeline.delivering import RunningClock, Sending, http, segment_rows, settled
from pipeline.dying import DIED, DONE, push_that_dies
from stored import dead_letters

from eventbridge.delivery.push import push
from eventbridge.event.ids import delivery_id_text
from eventbridge.pipeline.commit.stage import commit
from eventbridge.repair.audit import audit
from eventbridge.runtime.runtime import Runtime

#: Retried at once, so that one push shows everything.
AT_ONCE = "{policy: custom, max_retries: 3, initial_delay: 0s, max_delay: 0s}"


def batching(path: str, most: int = 10, **fields: object) -> str:
    """Return a target that takes so many deliveries in one request."""
    return http(path, batch=f"{{count: {most}}}", **fields)


def statuses(requests: list[dict[str, Any]], path: str) -> dict[str, list[int]]:
    """Return what response each delivery got at a path, attempt by attempt, as the receiver wrote it down."""
    found: dict[str, list[int]] = {}
    for request in requests:
        if request["path"] == path:
            for each, status in zip(request["webhook_ids"], request["item_statuses"], strict=True):
                found.setdefault(each, []).append(status)
    return found


def sizes(requests: list[dict[str, Any]], path: str) -> list[int]:
    """Return how many deliveries each request to a path had."""
    return [len(request["webhook_ids"]) for request in requests if request["path"] == path]


def reconciliation(runtime: Runtime, target: str = "crm") -> dict[str, int]:
    """Return the audit's numbers of a target, after checking them."""
    found = audit(runtime)
    assert found.differences == ()
    return dict(found.deliveries[f"orders/{target}"])


def test_only_what_is_not_acknowledged_is_sent_again(sending: Sending) -> None:
    """Every third delivery is refused twice: it comes three times under its id, the others once."""
    path = "/each/503/3/2/again"
    runtime = sending.begin(30, crm=batching(path, retry=AT_ONCE))

    batch_id = sending.deliver_batch()

    assert batch_id is not None
    reported = statuses(sending.requests(), path)
    assert Counter(map(tuple, reported.values())) == {(200,): 20, (503, 503, 200): 10}
    assert sizes(sending.requests(), path)[:3] == [10, 10, 10]
    rows = segment_rows(runtime, batch_id)
    assert {
        name: [
            row["code"]
            for row in sorted(rows, key=lambda row: row["attempt"])
            if delivery_id_text(row["delivery_id"]) == name
        ]
        for name in reported
    } == reported
    assert reconciliation(runtime)["delivered"] == 30


def test_items_refused_in_one_request_are_retried_together(sending: Sending) -> None:
    """Jitter spreads requests, not the items of one: ten are refused together, and come together a second later."""
    path = "/each/503/3/1/together"
    policy = "{policy: custom, max_retries: 3, initial_delay: 1s, max_delay: 1s, jitter: 0.5}"
    sending.begin(30, crm=batching(path, most=30, retry=policy))

    sending.deliver_batch()

    assert sizes(sending.requests(), path) == [30, 10]


def test_a_later_batch_takes_up_what_was_left_in_batch_requests_of_its_own(
    sending: Sending, clock: RunningClock
) -> None:
    """Retries of several batch requests travel together, in the slow lane, under their ids."""
    path = "/each/429/2/1/later"
    runtime = sending.begin(30, crm=batching(path))

    first = sending.deliver_batch()

    assert first is not None
    assert Counter(row.status for row in settled(runtime, first)["crm"]) == {"delivered": 15, "retry_scheduled": 15}
    clock.advance(4_400)
    sending.deliver()
    assert Counter(map(tuple, statuses(sending.requests(), path).values())) == {(200,): 15, (429, 200): 15}
    assert sizes(sending.requests(), path)[3:] == [10, 5]
    assert reconciliation(runtime)["delivered"] == 30


def test_behind_an_index_nothing_is_counted(sending: Sending) -> None:
    """The target takes four of each request: one of each request is retried, those behind it are just sent on."""
    path = "/first/4/crm"
    runtime = sending.begin(20, crm=batching(path, retry=AT_ONCE, max_in_flight=1))

    batch_id = sending.deliver_batch()

    assert batch_id is not None
    reported = statuses(sending.requests(), path)
    assert {each.count(200) for each in reported.values()} == {1}
    rows = segment_rows(runtime, batch_id)
    assert Counter(row["outcome"] for row in rows)["delivered"] == 20
    assert {row["error_class"] for row in rows if row["outcome"] == "retry_scheduled"} == {"NotAcknowledged"}
    assert len(rows) < sum(map(len, reported.values())), "unjudged deliveries have no attempt"
    assert reconciliation(runtime)["delivered"] == 20


def test_a_request_that_is_too_large_is_sent_in_halves(sending: Sending) -> None:
    """413 is not a dead letter while there is something to halve, and counts no attempt."""
    path = "/at-most/3/crm"
    runtime = sending.begin(20, crm=batching(path))

    batch_id = sending.deliver_batch()

    assert batch_id is not None
    rows = segment_rows(runtime, batch_id)
    assert [(row["outcome"], row["attempt"], row["code"]) for row in rows] == [("delivered", 1, 200)] * 20
    assert reconciliation(runtime)["delivered"] == 20


def test_one_that_is_refused_is_the_only_dead_letter(sending: Sending, order: Callable[..., bytes]) -> None:
    """The other 19 of its batch request are delivered."""
    runtime = sending.begin(12, order("x", subject="poison"), 7, crm=batching("/picky/crm", 20))

    batch_id = sending.deliver_batch()

    assert batch_id is not None
    assert (reconciliation(runtime)["delivered"], reconciliation(runtime)["dead_lettered"]) == (19, 1)
    [dead_letter] = dead_letters(runtime)
    assert (dead_letter["event_id"], dead_letter["reason"]) == ("x", "non_retryable")


@pytest.mark.parametrize(
    "said", ["sure%3A", "%7B%22acknowledge_index%22%3A%2099%7D", "%7B%22delivery_results%22%3A%5B%5D%7D"]
)
def test_nonsense_delivers_nothing(sending: Sending, said: str) -> None:
    """Everything is tried again, and the outcome says why."""
    runtime = sending.begin(10, crm=batching(f"/say/{said}"))

    batch_id = sending.deliver_batch()

    assert batch_id is not None
    assert {(row["outcome"], row["reason"]) for row in segment_rows(runtime, batch_id)} == {
        ("retry_scheduled", "UnclearResults")
    }
    assert reconciliation(runtime) | {"delivered": 0, "pending": 10} == reconciliation(runtime)


def test_a_slow_target_with_batch_requests_delays_no_other_target(sending: Sending) -> None:
    """Its neighbour in the chunk has everything while the batch request is in flight."""
    slow = batching("/hang/crm", timeout="5s")
    batch = sending.routed(20, crm=slow, note=batching("/healthy/note", 5))
    runtime = sending.runtime

    sending.push(batch)

    hung = [request for request in sending.requests() if request["path"] == "/hang/crm"]
    note = [request for request in sending.requests() if request["path"] == "/healthy/note"]
    given_up = datetime.fromisoformat(hung[0]["at"]) + timedelta(seconds=4)
    assert sizes(sending.requests(), "/healthy/note") == [5, 5, 5, 5]
    assert all(datetime.fromisoformat(request["at"]) < given_up for request in note)
    rows = [row for row in segment_rows(runtime, batch.batch_id) if row["target"] == "crm"]
    assert {(row["outcome"], row["reason"]) for row in rows} == {("retry_scheduled", "Timeout")}
    assert len(rows) == 20


def test_a_rate_counts_deliveries_not_requests(sending: Sending) -> None:
    """A request has no more items than there are tokens, and the rest waits untried."""
    crm = batching("/healthy/rate", rate="10/s")
    batch = sending.routed(60, settings={"push_timeout": 2}, crm=crm, note="/healthy/beside")
    runtime = sending.runtime

    sending.push(batch)

    rows = [row for row in segment_rows(runtime, batch.batch_id) if row["target"] == "crm"]
    assert 10 <= len(rows) <= 10 * 3 + 1
    assert sum(sizes(sending.requests(), "/healthy/rate")) == len(rows)


def test_a_target_that_is_probed_gets_one_item(sending: Sending, clock: RunningClock) -> None:
    """An open breaker lets single deliveries through, until five were good; then batch requests again."""
    runtime = sending.begin(
        40, crm=batching("/scripted/probed", retry="{policy: custom, max_retries: 9, initial_delay: 1s, multiplier: 1}")
    )
    set_response(sending, "/script/503/probed")
    sending.deliver_batch()
    status = runtime.ledger.targets.statuses()["orders", "crm"]
    assert status.state == "degraded"
    before = len(sending.requests())

    set_response(sending, "/script/200/probed")
    clock.advance(60)
    sending.deliver()

    healed = sizes(sending.requests()[before:], "/scripted/probed")
    assert healed[:5] == [1] * 5
    assert max(healed) > 1
    assert set(map(tuple, statuses(sending.requests()[before:], "/scripted/probed").values())) == {(200,)}


def set_response(sending: Sending, path: str) -> None:
    """Set the response of the receiver from now on."""
    with urllib.request.urlopen(urllib.request.Request(sending.receiver.url(path), method="POST")):
        pass


def test_a_push_may_die_anywhere(sending: Sending, site: Any, tmp_path: Path) -> None:
    """Killed around any send, response or segment: recorded deliveries are not sent again, the rest is, by its ids."""
    path = "/each/503/4/1/dies"
    site.environ |= {"EVENTBRIDGE_SEGMENT_RESPONSES": "3", "EVENTBRIDGE_BATCH_TIMEOUT": "3600"}
    batch = sending.routed(9, crm=batching(path, 3, retry=AT_ONCE, max_in_flight=1))

    for number in count(1):
        wreck = site.copy(tmp_path / f"wreck-{number}")
        before = len(sending.requests())
        code = push_that_dies(wreck.folder, wreck.environ, batch.batch_id, number)
        died = statuses(sending.requests()[before:], path)
        runtime = wreck.reopen()
        rows = segment_rows(runtime, batch.batch_id)
        written = {delivery_id_text(row["delivery_id"]) for row in rows if row["outcome"] == "delivered"}
        before = len(sending.requests())
        push(runtime, batch.batch_id, 0)
        again = statuses(sending.requests()[before:], path)
        Sending(wreck, sending.receiver, sending.order).settle(batch)

        assert written <= died.keys(), "what is called delivered was sent"
        assert not written & again.keys(), "what is written down is not sent again"
        assert len(died.keys() | again.keys()) == 9
        assert {row.status for row in settled(runtime, batch.batch_id)["crm"]} == {"delivered"}
        assert commit(runtime, batch.batch_id)
        assert reconciliation(runtime)["delivered"] == 9
        wreck.close()
        if code == DONE:
            assert again == {}
            break
        assert code == DIED
    assert number > 10
