"""After a target responds with 429, no push sends anything to it before the time that it names."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from pipeline.delivering import RunningClock, Sending, http, routed, segment_rows, settled
from stored import dead_letters

from eventbridge.control.overrides import enable_target
from eventbridge.delivery.push import push
from eventbridge.ledger.chunks import ChunkEnd
from eventbridge.model.rule_state import TargetStatus
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.deliver import next_due_at
from eventbridge.pipeline.retry.plan import plan_retries
from eventbridge.policy.breaker import Tally
from eventbridge.repair.audit import audit
from eventbridge.views.metrics import metrics
from eventbridge.views.status import status
from eventbridge.views.target_status import target_list, target_page

#: Deliveries that are deferred for a short time are retried by the same push.
SOON = "{policy: custom, max_retries: 20, initial_delay: 100ms, multiplier: 1, max_delay: 100ms}"


def standing(sending: Sending) -> TargetStatus:
    """Return how the target crm stands."""
    return sending.runtime.ledger.targets.statuses()["orders", "crm"]


def sent(sending: Sending, path: str) -> list[datetime]:
    """Return when the requests of a path came."""
    return [datetime.fromisoformat(each["at"]) for each in sending.requests() if each["path"] == path]


def test_it_is_sent_nothing_before_the_time_it_named(sending: Sending) -> None:
    """Its push waits two seconds, though 39 other deliveries are ready; its neighbour gets everything meanwhile."""
    crm = http("/throttle/2/waited-for", max_in_flight=1, retry=SOON)
    batch = sending.routed(40, crm=crm, note=http("/delay/120", max_in_flight=2))

    sending.push(batch)

    times = sent(sending, "/throttle/2/waited-for")
    assert [at for at in times[1:] if at < times[0] + timedelta(seconds=2)] == []
    assert len(times) == 41, "all of it came within this push, after the pause"
    notes = sent(sending, "/delay/120")
    assert any(times[0] < at < times[1] for at in notes)
    assert standing(sending).state == "ok"


def test_a_long_pause_ends_the_push_and_what_is_left_has_no_attempt(sending: Sending, clock: RunningClock) -> None:
    """It waits in the slow lane until the time that was named; then all is delivered, and everything is reconciled."""
    batch = sending.routed(40, crm=http("/throttle/60/long", max_in_flight=1, retry=SOON), note="/healthy/note")
    runtime = sending.runtime

    sending.push(batch)
    sending.settle(batch)

    rows = settled(runtime, batch.batch_id)["crm"]
    until = standing(sending).paused_until
    assert until is not None
    assert len(sent(sending, "/throttle/60/long")) == 1
    assert sorted(row.attempts for row in rows) == [0] * 39 + [1]
    assert {(row.status, row.reason, row.due_at) for row in rows if not row.attempts} == {
        ("retry_scheduled", "target_paused", until)
    }
    assert runtime.ledger.chunks.get(batch.batch_id, 0).state == "completed"
    assert len(sent(sending, "/healthy/note")) == 40
    assert commit(runtime, batch.batch_id)
    assert plan_retries(runtime).batch_id is None
    assert next_due_at(runtime, "orders") == until
    sending.publish(3)
    sending.deliver()
    assert len(sent(sending, "/throttle/60/long")) == 1, "new events, in any push, keep the pause"

    clock.advance(3600)
    sending.rules(crm="/healthy/crm", note="/healthy/note")
    sending.deliver()

    assert audit(runtime).deliveries["orders/crm"] == {"matched": 43, "delivered": 43, "dead_lettered": 0, "pending": 0}
    assert audit(runtime).differences == ()


def test_a_pause_is_shown_wherever_a_target_is_shown(sending: Sending, clock: RunningClock) -> None:
    """Status, list, page and metrics call it `paused` with its end, and `ok` once that is over."""
    batch = sending.routed(4, crm=http("/throttle/60/shown", max_in_flight=1, retry=SOON))
    runtime = sending.runtime
    sending.push(batch)
    sending.settle(batch)
    until = standing(sending).paused_until

    def shown() -> list[tuple[str, object]]:
        families = {family.name.removeprefix("eventbridge_"): family.samples for family in metrics(runtime)}
        counted = {sample.labels[0]: sample.value for sample in families["targets"]}
        named = [sample.labels for sample in families["target_not_ok"]]
        lines = [*status(runtime).targets, *target_list(runtime), *target_page(runtime).unhealthy]
        found = [(line.state, line.paused_until) for line in lines if line.target == "crm"]
        return [*found, ("counted", counted["paused"]), ("named", named)]

    paused = ("paused", until)
    assert until is not None
    assert shown() == [paused] * 3 + [("counted", 1), ("named", [("orders", "crm", "paused")])]
    clock.advance(61)
    assert shown() == [("ok", None), ("counted", 0), ("named", [])]


@pytest.mark.parametrize("ordered", [{}, {"ordering_key": "$.data.id"}])
def test_a_delivery_ends_at_its_age_although_its_target_is_paused_for_longer(
    sending: Sending, clock: RunningClock, ordered: dict[str, str]
) -> None:
    """Tried or not, it is a dead letter once it is five minutes old, and not when the hour of the pause is over."""
    aged = SOON.replace("}", ", maximum_event_age: 5m}")
    runtime = sending.begin(4, crm=http("/throttle/3600/aged", max_in_flight=1, retry=aged, **ordered))
    sending.deliver_batch()
    clock.advance(290)
    sending.deliver()
    before = audit(runtime).deliveries["orders/crm"]

    clock.advance(20)
    sending.deliver()

    assert before == {"matched": 4, "delivered": 0, "dead_lettered": 0, "pending": 4}
    assert audit(runtime).deliveries["orders/crm"] == {"matched": 4, "delivered": 0, "dead_lettered": 4, "pending": 0}
    assert {dead_letter["reason"] for dead_letter in dead_letters(runtime)} == {"maximum_event_age"}
    assert len(sent(sending, "/throttle/3600/aged")) == 1
    assert audit(runtime).differences == ()


def test_an_enabled_target_gets_at_once_what_its_pause_deferred(sending: Sending) -> None:
    """An operator that knows better than its Retry-After need not wait for an hour."""
    runtime = sending.begin(40, crm=http("/throttle/3600/enabled", max_in_flight=1, retry=SOON))
    sending.deliver_batch()
    assert plan_retries(runtime).batch_id is None
    sending.rules(crm="/healthy/crm")

    assert enable_target(runtime, "orders", "crm") == 40
    sending.deliver()

    assert len(sent(sending, "/healthy/crm")) == 40
    assert audit(runtime).differences == ()


def test_an_enabled_target_gets_at_once_what_each_push_deferred(sending: Sending) -> None:
    """Parallel pushes received different times: deliveries that wait for the earlier one need not wait for it
    either.
    """
    runtime = sending.begin(
        40,
        settings={"chunk_max_deliveries": 20},
        crm=http("/throttle/3600/earlier", max_in_flight=1, retry=SOON),
    )
    batch = routed(runtime)
    push(runtime, batch.batch_id, 0)
    longer = runtime.ledger.now() + timedelta(seconds=7200)
    runtime.ledger.targets.record_attempts([Tally("orders", "crm", paused_until=longer)])
    push(runtime, batch.batch_id, 1)
    sending.settle(batch)
    assert commit(runtime, batch.batch_id)
    sending.rules(crm="/healthy/crm")

    assert enable_target(runtime, "orders", "crm") == 40
    sending.deliver()

    assert len(sent(sending, "/healthy/crm")) == 40
    assert audit(runtime).differences == ()


def test_other_pushes_keep_the_pause_too(sending: Sending, site: Any) -> None:
    """A pause that one push received reaches another through the ledger within about a second, in the middle of its
    chunk.
    """
    sending.rules(crm=http("/delay/50", max_in_flight=1))
    sending.publish(800)
    works = [site.reopen(push_timeout=15, chunk_max_deliveries=400) for _ in range(2)]
    batch = routed(works[0])
    thread = threading.Thread(target=push, args=(works[0], batch.batch_id, 0))
    thread.start()
    _until_sent(sending, "/delay/50")

    reported = works[1].ledger.now() + timedelta(seconds=60)
    works[1].ledger.targets.record_attempts([Tally("orders", "crm", paused_until=reported)])
    thread.join(60)

    assert not thread.is_alive()
    rows = segment_rows(works[0], batch.batch_id)
    assert {row["reason"] for row in rows if not row["sent"]} == {"target_paused"}
    assert {row["due_at"] for row in rows if not row["sent"]} == {reported}
    assert 1 <= sum(row["sent"] for row in rows) < 200
    before = len(sent(sending, "/delay/50"))
    assert push(works[1], batch.batch_id, 1).delivered == 0
    assert len(sent(sending, "/delay/50")) == before, "one that begins sends nothing at all"


def test_a_burst_of_429_is_one_word_against_the_target(sending: Sending) -> None:
    """Thirty requests were in flight when it asked for a pause: its breaker stays closed, the pause is kept."""
    batch = sending.routed(200, crm=http("/throttle/60/burst", max_in_flight=30))

    sending.push(batch)

    assert 10 <= len(sent(sending, "/throttle/60/burst")) <= 30
    assert standing(sending).state == "ok"
    assert standing(sending).paused_until is not None


def test_a_burst_of_429_of_an_ordered_target_is_one_word_too(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of other keys were in flight; only the first response counts as a failed attempt."""
    crm = http("/throttle/60/keys", max_in_flight=30, ordering_key="$.data.id")
    batch = sending.routed(30, crm=crm)
    ends: list[ChunkEnd] = []
    kind = type(sending.runtime.ledger.chunks)
    end = kind.end

    def noted(self: object, batch_id: str, chunk_id: int, claim: int, how: ChunkEnd) -> bool:
        ends.append(how)
        return bool(end(self, batch_id, chunk_id, claim, how))

    monkeypatch.setattr(kind, "end", noted)

    sending.push(batch)

    assert len(sent(sending, "/throttle/60/keys")) > 1
    assert sum(tally.total.failed for ended in ends for tally in ended.tallies) == 1


def test_a_target_that_only_ever_asks_for_pauses_is_degraded(sending: Sending) -> None:
    """Each pause counts once against it: ten of them, and nothing accepted, open its breaker."""
    policy = "{policy: custom, max_retries: 0, initial_delay: 200ms, multiplier: 1, max_delay: 200ms, jitter: 0}"
    batch = sending.routed(200, crm=http("/status/429", max_in_flight=3, retry=policy))

    sending.push(batch)

    times = sent(sending, "/status/429")
    assert standing(sending).state == "degraded"
    assert "10 of 10 attempts failed" in standing(sending).reason
    assert 10 <= len(times) <= 33
    # From the first to the last: each pause is one between two that came, and three are sent at once.
    assert times[-1] - times[0] > 9 * timedelta(seconds=0.19), "without Retry-After the policy's wait is the pause"


def test_an_ordered_target_is_paused_too(sending: Sending) -> None:
    """The keys of all its shards wait; they have no attempt, and are not taken up before the pause is over."""
    batch = sending.routed(40, crm=http("/throttle/60/ordered", ordering_key="$.data.id", max_in_flight=1))
    runtime = sending.runtime

    sending.push(batch)
    sending.settle(batch)
    assert commit(runtime, batch.batch_id)

    assert len(sent(sending, "/throttle/60/ordered")) == 1
    assert sorted(row.attempts for row in settled(runtime, batch.batch_id)["crm"]) == [0] * 39 + [1]
    assert runtime.ledger.chunks.get(batch.batch_id, 0).state == "completed"
    assert standing(sending).paused_until is not None
    assert plan_retries(runtime).batch_id is None
    assert audit(runtime).differences == ()


def test_a_503_delays_its_own_delivery_alone(sending: Sending) -> None:
    """Each delivery is refused twice with Retry-After: 1; all of them are sent at once, and again a second later."""
    runtime = sending.begin(30, crm=http("/flaky/alone", max_in_flight=4, retry=SOON))

    sending.deliver_batch(idle_seconds=6)

    times = sent(sending, "/flaky/alone")
    assert len(times) == 90
    assert sum(at < times[0] + timedelta(seconds=0.9) for at in times) > 4, "more than one round of what is in flight"
    assert standing(sending).paused_until is None
    assert audit(runtime).deliveries["orders/crm"]["delivered"] == 30


def _until_sent(sending: Sending, path: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not sent(sending, path):
        assert time.monotonic() < end, "nothing was sent"
        time.sleep(0.01)
