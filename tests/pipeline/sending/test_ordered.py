"""An ordered target gets all deliveries of a key in bus order, whatever fails, and other keys continue."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest
from msgspec import structs
from pipeline.delivering import RUNNER, RunningClock, Sending, http, rules, segment_rows
from pipeline.ordering import RETRY, Recorder, keyed, ordered, publish
from stored import dead_letters

from eventbridge.control.consecutive_batches import deliver_replay
from eventbridge.control.overrides import enable_target
from eventbridge.control.release import deliveries_on_hold, release_rule
from eventbridge.errors import NotFoundError, SparkError
from eventbridge.event.ids import delivery_id_text
from eventbridge.model.outcome import Response
from eventbridge.pipeline.deliver import push_and_settle
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.route.stage import route
from eventbridge.policy.ordering import shard_of
from eventbridge.repair.audit import audit
from eventbridge.replay.plan import begin_replay
from eventbridge.replay.request import WrittenReplayRequest
from eventbridge.routing.job import RouteJob, SliceResult, Task
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.targets.protocol import Request
from eventbridge.testing.targets import InMemoryTarget, accept
from eventbridge.views.status import status


def later(sending: Sending, clock: RunningClock, rounds: int = 3) -> None:
    """Deliver what is due in an hour, and what becomes due after that."""
    for _ in range(rounds):
        clock.advance(2 * 3600)
        sending.deliver()


def test_a_failed_delivery_blocks_its_key_and_no_other(
    sending: Sending, clock: RunningClock, recorder: Recorder
) -> None:
    """If a customer's third order fails, it and all later ones are delivered once it is accepted."""
    publish(sending, *[keyed(n, c) for n in range(6) for c in "ab"])
    runtime = sending.begin(crm=ordered())
    recorder.refused[("a", 3)] = 503
    sending.deliver()
    publish(sending, *[keyed(n, c) for n in range(6, 9) for c in "ab"])
    sending.deliver()
    assert recorder.got == {"a": [0, 1, 2], "b": list(range(9))}
    assert [order for order in recorder.asked if order[0] == "a"] == [("a", 0), ("a", 1), ("a", 2), ("a", 3)]

    recorder.refused.clear()
    later(sending, clock)

    assert recorder.got["a"] == list(range(9))
    assert audit(runtime).differences == ()
    assert audit(runtime).deliveries["orders/crm"] == {"matched": 18, "delivered": 18, "dead_lettered": 0, "pending": 0}


class Try:
    """A router of one try, whose files lie in a folder of that name; after so many slices its Spark ends."""

    def __init__(self, runtime: Runtime, name: str, slices: int = 100) -> None:
        self._inner = InProcessRouter(runtime.store)
        self._name = name
        self._slices = slices

    def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        for result in self._inner.route_slices(structs.replace(job, attempt=self._name), tasks):
            if self._slices == 0:
                raise SparkError("Spark is gone")
            self._slices -= 1
            yield result


def test_a_batch_that_two_tries_routed_keeps_the_order(
    sending: Sending, clock: RunningClock, recorder: Recorder, small_slices: None
) -> None:
    """The last deliveries of a shard that is too large for a chunk wait, whatever the names of the tries' folders."""
    publish(sending, *[keyed(n, "a") for n in range(12)])
    runtime = sending.begin(crm=ordered(), settings={"chunk_max_deliveries": 4})
    batch_id = listen(runtime, RUNNER) or ""
    buffer(runtime, batch_id)
    with pytest.raises(SparkError, match="gone"):
        route(runtime, batch_id, Try(runtime, "z", slices=2))
    chunk_ids = route(runtime, batch_id, Try(runtime, "a"))

    push_and_settle(runtime, batch_id, chunk_ids, Stop())
    later(sending, clock)

    assert recorder.asked == [("a", n) for n in range(12)]


def test_a_dead_target_gets_its_backlog_in_order_once_it_is_back(
    sending: Sending, clock: RunningClock, recorder: Recorder
) -> None:
    """While a target is down, only the first delivery of each key is tried; afterwards all are delivered in order."""
    publish(sending, keyed(0, "a"))
    sending.begin(crm=ordered())
    recorder.down = True
    for n in range(1, 4):
        sending.deliver()
        publish(sending, keyed(n, "a"), keyed(n, "b"))
    sending.deliver()
    later(sending, clock, rounds=1)
    assert set(recorder.asked) == {("a", 0), ("b", 1)}

    recorder.down = False
    later(sending, clock)

    assert recorder.got == {"a": [0, 1, 2, 3], "b": [1, 2, 3]}
    assert audit(sending.runtime).differences == ()


def test_a_dead_lettered_delivery_does_not_block(sending: Sending, clock: RunningClock, recorder: Recorder) -> None:
    """Later deliveries continue after a delivery becomes a dead letter, immediately or after its retries."""
    publish(sending, *[keyed(n, "a") for n in range(5)])
    sending.begin(crm=ordered())
    recorder.refused |= {("a", 1): 400, ("a", 3): 503}
    sending.deliver()
    later(sending, clock, rounds=4)

    assert recorder.got["a"] == [0, 2, 4]
    assert audit(sending.runtime).deliveries["orders/crm"] == {
        "matched": 5,
        "delivered": 3,
        "dead_lettered": 2,
        "pending": 0,
    }


def test_events_without_a_value_are_ordered_among_themselves(
    sending: Sending, clock: RunningClock, recorder: Recorder
) -> None:
    """Events without a value share one key; 1 and "1" are different keys."""
    publish(sending, *[keyed(n, None) for n in range(3)], keyed(0, "a"))
    sending.begin(crm=ordered())
    recorder.refused[None, 0] = 503
    sending.deliver()
    assert recorder.got == {"a": [0]}

    recorder.refused.clear()
    later(sending, clock)

    assert recorder.got[None] == [0, 1, 2]


def test_by_partition_a_partition_is_one_key(sending: Sending, clock: RunningClock, recorder: Recorder) -> None:
    """With `ordering_key: partition`, only the partition of the failed delivery waits."""
    bodies = [keyed(n, "a") for n in range(6)]
    positions = [position for body in bodies for position in sending.site.publish(body)]
    sending.begin(crm=ordered("ordering_key: partition"))
    (failing,) = {partition for partition, _ in positions if partition == positions[0][0]}
    mine = [n for n, (partition, _) in enumerate(positions) if partition == failing]
    recorder.refused["a", mine[0]] = 503
    sending.deliver()
    assert sorted(recorder.got["a"]) == sorted(set(range(6)) - set(mine))

    recorder.refused.clear()
    later(sending, clock)

    assert [n for n in recorder.got["a"] if n in mine] == mine


NONE = "errors_tolerance: none"


def test_without_tolerance_a_rule_is_held_and_no_other_target_notices(
    sending: Sending, clock: RunningClock, recorder: Recorder
) -> None:
    """A permanently refused delivery is on hold and all later ones wait; the other target gets everything."""
    publish(sending, *[keyed(n, "a") for n in range(4)])
    runtime = sending.begin(strict=ordered(NONE), easy=ordered())
    recorder.refused["a", 1] = 400
    sending.deliver()
    publish(sending, keyed(4, "b"))
    sending.deliver()
    later(sending, clock)

    reconciliation = audit(runtime)
    assert reconciliation.differences == ()
    assert reconciliation.deliveries["orders/easy"] == {"matched": 5, "delivered": 4, "dead_lettered": 1, "pending": 0}
    assert reconciliation.deliveries["orders/strict"]["dead_lettered"] == 0
    assert reconciliation.deliveries["orders/strict"]["pending"] >= 3
    (held,) = deliveries_on_hold(runtime, "orders").values()
    assert (held.target, held.reason) == ("strict", "non_retryable")


def test_a_held_rule_continues_once_the_delivery_is_taken(
    sending: Sending, clock: RunningClock, recorder: Recorder
) -> None:
    """A delivery that is released while it still fails is on hold again; after the fix all are delivered in order."""
    publish(sending, *[keyed(n, "a") for n in range(4)])
    runtime = sending.begin(strict=ordered(NONE))
    recorder.refused["a", 1] = 400
    sending.deliver()
    release_rule(runtime, "orders")
    sending.deliver()
    assert [order for order in recorder.asked if order == ("a", 1)] == [("a", 1)] * 2
    (held,) = deliveries_on_hold(runtime, "orders").values()

    recorder.refused.clear()
    released = release_rule(runtime, "orders")
    later(sending, clock)

    assert released.retried == (held,)
    got = recorder.got["a"]
    assert sorted(got) == [0, 1, 2, 3]
    assert audit(runtime).deliveries["orders/strict"] == {
        "matched": 4,
        "delivered": 4,
        "dead_lettered": 0,
        "pending": 0,
    }
    assert deliveries_on_hold(runtime, "orders") == {}


def test_a_skipped_delivery_is_a_dead_letter_and_the_rest_continues(
    sending: Sending, clock: RunningClock, recorder: Recorder
) -> None:
    """Exactly that one is dead-lettered, with its reason, its attempt, and that an operator skipped it."""
    publish(sending, *[keyed(n, "a") for n in range(4)])
    runtime = sending.begin(strict=ordered(NONE))
    recorder.refused["a", 1] = 400
    sending.deliver()
    with pytest.raises(
        NotFoundError, match=r"blocked by no delivery 'ffff'. It is blocked by: .* \(strict, non_retryable\)"
    ):
        release_rule(runtime, "orders", "ffff")
    (held,) = deliveries_on_hold(runtime, "orders").values()

    release_rule(runtime, "orders", held.delivery_id[:10])
    later(sending, clock)

    assert sorted(recorder.got["a"]) == [0, 2, 3]
    (record,) = list(dead_letters(runtime, whole=True))
    assert delivery_id_text(record["delivery_id"]) == held.delivery_id
    assert (record["reason"], len(record["attempts"])) == ("non_retryable", 1)
    assert "rules release --skip" in record["detail"]
    assert audit(runtime).differences == ()


def test_a_transform_that_fails_holds_the_rule_too(sending: Sending, clock: RunningClock, recorder: Recorder) -> None:
    """With `errors_tolerance: none` a failed transform is no dead letter; later deliveries wait for a skip."""
    transform = "transform: {form: JSONPATH, value: $.data.customer, missing: error}"
    target = f"{{type: http, url: https://shop.example/hook, {NONE}, {transform}, {RETRY}}}"
    sending.write(rules({"strict": target}))
    for number, customer in enumerate(["a", None, "b"]):
        sending.site.publish(keyed(number, customer), key="one")
    runtime = sending.runtime
    recorder.plain = True
    sending.deliver()
    assert recorder.got["plain"] == [b'"a"']
    assert list(dead_letters(runtime, whole=True)) == []
    (held,) = deliveries_on_hold(runtime, "orders").values()
    assert held.reason == "transform_failed"
    (shown,) = status(runtime).rules_on_hold
    assert (shown.rule, shown.reason) == ("orders", f"on hold at {held.delivery_id} of the target strict")

    release_rule(runtime, "orders", held.delivery_id)
    later(sending, clock)

    assert recorder.got["plain"] == [b'"a"', b'"b"']
    (record,) = list(dead_letters(runtime, whole=True))
    assert record["reason"] == "transform_failed"
    assert audit(runtime).differences == ()


def test_a_key_continues_while_another_key_of_its_shard_fails(
    sending: Sending, clock: RunningClock, recorder: Recorder
) -> None:
    """If two keys of one shard fail and one is fixed, that one gets its backlog although the other still fails."""
    one, two = ("a", "b")
    assert shard_of(f'"{one}"') == shard_of(f'"{two}"')
    for n in range(3):
        publish(sending, keyed(n, one), keyed(n, two))
    runtime = sending.begin(
        crm=ordered(retry="retry: {policy: custom, max_retries: 99, initial_delay: 1h, multiplier: 1, max_delay: 1h}")
    )
    recorder.refused |= {(one, 0): 503, (two, 0): 503}
    sending.deliver()
    publish(sending, keyed(3, one), keyed(3, two))
    sending.deliver()
    later(sending, clock, rounds=1)
    assert {row.hold_reason for row in runtime.ledger.pending.find("on_hold")} == {"order"}

    del recorder.refused[one, 0]
    later(sending, clock, rounds=1)

    assert recorder.got == {one: [0, 1, 2, 3]}
    assert set(recorder.asked) == {(two, 0), *((one, n) for n in range(4))}
    assert audit(runtime).differences == ()


def test_a_push_waits_for_the_lease_of_another(sending: Sending, clock: RunningClock, recorder: Recorder) -> None:
    """While another push may have something of a shard in flight, nothing of the shard is sent, and nothing is lost."""
    publish(sending, keyed(0, "a"))
    sending.begin(crm=ordered())
    runtime = sending.site.reopen(push_timeout=1)
    runtime.ledger.order.acquire_lease(
        "orders", "crm", shard_of('"a"'), "a push that hangs", clock() + timedelta(seconds=300)
    )
    sending.deliver_batch()
    assert sending.retry() is None
    assert recorder.asked == []

    clock.advance(301)
    sending.deliver()

    assert recorder.got == {"a": [0]}


def test_a_retry_within_a_push_keeps_the_order(sending: Sending, recorder: Recorder) -> None:
    """If each order is refused once and then retried by the same push, no order of its customer overtakes it."""
    publish(sending, *[keyed(n, c) for n in range(3) for c in "ab"])
    recorder.at_first = 1
    soon = "retry: {policy: custom, max_retries: 3, initial_delay: 50ms, multiplier: 1, max_delay: 50ms}"
    runtime = sending.begin(crm=ordered(retry=soon))

    batch_id = sending.deliver_batch()

    for customer in "ab":
        assert [number for one, number in recorder.asked if one == customer] == [0, 0, 1, 1, 2, 2]
    assert batch_id is not None
    rows = segment_rows(runtime, batch_id)
    due = {row["delivery_id"]: row["due_at"] for row in rows if row["outcome"] == "retry_scheduled"}
    assert all(row["started_at"] >= due[row["delivery_id"]] for row in rows if row["outcome"] == "delivered")


@pytest.mark.parametrize(("path", "leased"), [("/hang/crm", [shard_of('"a"')]), ("/healthy/crm", [])])
def test_a_request_in_flight_at_the_end_keeps_its_shard(
    sending: Sending, clock: RunningClock, path: str, leased: list[int]
) -> None:
    """While an abandoned request may still arrive, nothing of its shard is sent."""
    publish(sending, keyed(0, "a"), keyed(1, "a"))
    crm = http(path, timeout="20s", ordering_key="$.data.customer")
    runtime = sending.begin(settings={"push_timeout": 1}, crm=crm)
    sending.deliver_batch()
    sending.rules(crm=http("/healthy/crm", timeout="20s", ordering_key="$.data.customer"))

    assert sorted(runtime.ledger.order.leases("orders", "crm")) == leased
    assert sending.retry() is None
    clock.advance(51)
    sending.deliver()

    assert [request["path"] for request in sending.requests()][-2:] == ["/healthy/crm"] * 2
    assert audit(runtime).deliveries["orders/crm"]["delivered"] == 2


def test_a_target_disabled_by_410_keeps_its_order(sending: Sending, clock: RunningClock, recorder: Recorder) -> None:
    """After a 410 nothing more is sent; once the target is enabled, the deliveries on hold are sent in order."""
    publish(sending, *[keyed(n, "a") for n in range(4)])
    runtime = sending.begin(crm=ordered())
    recorder.refused["a", 1] = 410
    sending.deliver()
    assert recorder.asked == [("a", 0), ("a", 1)]

    enable_target(runtime, "orders", "crm")
    later(sending, clock)

    assert recorder.got["a"] == [0, 2, 3]
    assert audit(runtime).deliveries["orders/crm"] == {"matched": 4, "delivered": 3, "dead_lettered": 1, "pending": 0}


def test_shards_share_the_in_flight_limit(
    sending: Sending, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve keys in several shards never have more than two requests in flight, and all are delivered."""
    now, most, lock, two = 0, 0, threading.Lock(), threading.Event()

    def response(request: Request) -> Response:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
            if now == 2:
                two.set()
        assert two.wait(30), "the second never began"
        time.sleep(0.02)  # long enough for a third request to start if it were allowed
        with lock:
            now -= 1
        return accept(request)

    monkeypatch.setattr("eventbridge.targets.open.open_target", lambda *_: InMemoryTarget(response))
    publish(sending, *[keyed(n, customer) for n in range(2) for customer in "abcdefghijkl"])
    runtime = sending.begin(crm=ordered("ordering_key: $.data.customer, max_in_flight: 2"))
    sending.deliver()

    assert most == 2
    assert audit(runtime).deliveries["orders/crm"]["delivered"] == 24


def test_a_replay_keeps_the_order_of_each_key(sending: Sending, clock: RunningClock, recorder: Recorder) -> None:
    """A replay of several batches keeps each key's order, while a delivery of the first batch fails."""
    publish(sending, *[keyed(n, c) for n in range(6) for c in "ab"])
    runtime = sending.begin(crm=ordered(), settings={"batch_max_events": 4})
    sending.deliver()
    clock.advance(1)
    recorder.refused["a", 1] = 503
    request = WrittenReplayRequest("orders", since="1h").read(runtime.ledger.now(), runtime.rule_set())
    batches = deliver_replay(runtime, begin_replay(runtime, request, "run").replay_id, InProcessRouter(runtime.store))
    blocked = {key: list(found) for key, found in recorder.got.items()}
    recorder.refused.clear()
    later(sending, clock)

    once = list(range(6))
    assert batches > 1
    assert blocked == {"a": [*once, 0], "b": 2 * once}
    assert recorder.got == {"a": 2 * once, "b": 2 * once}
    assert audit(runtime).differences == ()
