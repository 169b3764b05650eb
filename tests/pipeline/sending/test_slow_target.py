"""A target with slow or missing responses is detected once, and gets its deliveries in the slow lane."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from pipeline.delivering import RunningClock, Sending, http, settled

from eventbridge.delivery import run
from eventbridge.delivery.push import push
from eventbridge.model.rule_state import TargetStatus
from eventbridge.repair.audit import audit

#: Responses after two seconds: a fifth of its timeout.
LATE = http("/delay/2000", timeout="10s", max_in_flight=4)


def standing(sending: Sending, target: str = "crm") -> TargetStatus | None:
    """Return how a target stands, None if it never was anything but ok."""
    return sending.runtime.ledger.targets.statuses().get(("orders", target))


def received(sending: Sending, path: str) -> Counter[str]:
    """Return how often each delivery came to a path."""
    return Counter(request["webhook_id"] for request in sending.requests() if request["path"] == path)


def delivered(sending: Sending) -> dict[str, int]:
    """Return how many deliveries the reconciliation calls delivered, by target, having proved them."""
    found = audit(sending.runtime)
    assert found.differences == ()
    return {name.removeprefix("orders/"): numbers["delivered"] for name, numbers in found.deliveries.items()}


def test_the_others_do_not_wait_for_it_again(sending: Sending) -> None:
    """The first batch finds it out by ten responses and leaves what it had not begun; the next one sends it nothing."""
    runtime = sending.begin(40, crm=LATE, note="/healthy/note")

    first = sending.deliver_batch()

    assert first is not None
    slow = standing(sending)
    assert slow is not None
    assert (slow.state, slow.slow) == ("degraded", True)
    assert "responses within 30 s took a fifth of the timeout or longer" in slow.reason
    tried = received(sending, "/delay/2000")
    assert 10 <= sum(tried.values()) <= 14, "four are in flight when the tenth response comes"
    untried = [row for row in settled(runtime, first)["crm"] if row.status == "unknown"]
    assert len(untried) == 40 - sum(tried.values())
    assert {(row.attempts, row.lane) for row in untried} == {(0, "slow")}
    assert [chunk.state for chunk in runtime.ledger.chunks.list_for_batch(first)] == ["completed"]

    sending.publish(10)
    second = sending.deliver_batch()

    assert second is not None
    assert {row.status for row in settled(runtime, second)["note"]} == {"delivered"}
    assert received(sending, "/delay/2000") == tried
    assert delivered(sending) == {"crm": sum(tried.values()), "note": 50}


def test_it_gets_everything_once_at_its_own_speed_and_heals_when_it_is_quick(
    sending: Sending, clock: RunningClock
) -> None:
    """Nothing is lost or doubled meanwhile; five quick chunks bring it back to the others."""
    runtime = sending.begin(10, crm=LATE, note="/healthy/note")
    sending.deliver()
    slow = standing(sending)
    assert slow is not None
    assert (slow.state, slow.good) == ("degraded", 0), "none of its chunks was quick"
    assert set(received(sending, "/delay/2000").values()) == {1}
    assert delivered(sending) == {"crm": 10, "note": 10}

    sending.rules(crm="/healthy/crm", note="/healthy/note")
    clock.advance(31)
    for number in range(5):
        assert getattr(standing(sending), "good", None) == number
        sending.publish(2)
        sending.deliver()

    healed = standing(sending)
    assert healed is not None
    assert (healed.state, healed.reason) == ("ok", "5 chunks in a row were quick")
    sending.publish(3)
    batch_id = sending.deliver_batch()
    assert batch_id is not None
    assert [chunk.handed_out for chunk in runtime.ledger.chunks.list_for_batch(batch_id)] == [True]
    assert set(received(sending, "/healthy/crm").values()) == {1}
    assert delivered(sending) == {"crm": 23, "note": 23}


def test_a_target_that_begins_to_hang_costs_its_runner_one_time_out_once(sending: Sending) -> None:
    """Its batch waits for that, and sends it nothing more; the next batch is not held up by it at all."""
    runtime = sending.begin(2, crm="/healthy/crm", note="/healthy/note")
    sending.deliver_batch()
    sending.rules(crm=http("/hang/crm", timeout="3s", max_in_flight=2), note="/healthy/note")
    sending.publish(6)

    began = time.monotonic()
    first = sending.deliver_batch()
    first_seconds = time.monotonic() - began
    sending.publish(6)
    began = time.monotonic()
    second = sending.deliver_batch()
    second_seconds = time.monotonic() - began

    assert first is not None
    assert second is not None
    assert 3 <= first_seconds < 6, "one timeout and not two"
    assert second_seconds < 3
    assert received(sending, "/hang/crm").total() == 2
    tried = Counter((row.status, row.attempts, row.reason) for row in settled(runtime, first)["crm"])
    assert tried == {("retry_scheduled", 1, "Timeout"): 2, ("unknown", 0, None): 4}
    assert {(row.status, row.lane) for row in settled(runtime, second)["crm"]} == {("unknown", "slow")}
    hanging = standing(sending)
    assert hanging is not None
    assert (hanging.state, hanging.slow) == ("degraded", True)
    assert hanging.reason == "2 requests had no response in time"
    assert delivered(sending) == {"crm": 2, "note": 14}


def test_a_hanging_target_in_a_chunk_of_its_own_is_found_out_too(sending: Sending) -> None:
    """Its neighbours' chunks end without it, and its batch waits for one timeout."""
    settings = {"chunk_max_deliveries": 8}
    hanging = http("/hang/crm", timeout="2s", max_in_flight=8)
    runtime = sending.begin(8, settings=settings, crm=hanging, mail="/healthy/mail", note="/healthy/note")

    batch_id = sending.deliver_batch()

    assert batch_id is not None
    assert len(runtime.ledger.chunks.list_for_batch(batch_id)) == 3
    assert {row.status for row in settled(runtime, batch_id)["crm"]} == {"retry_scheduled"}
    assert getattr(standing(sending), "state", None) == "degraded"
    assert delivered(sending) == {"crm": 0, "mail": 8, "note": 8}


def test_a_target_is_judged_by_its_own_responses_whatever_is_beside_it(sending: Sending) -> None:
    """Twelve slow ones degrade it although no other target waits; what is beside it is not touched."""
    sending.begin(12, crm=LATE)
    sending.deliver_batch()

    slow = standing(sending)
    assert slow is not None
    assert (slow.state, slow.slow) == ("degraded", True)

    sending.rules(crm="/healthy/crm", quick="/delay/300", note="/healthy/note")
    sending.publish(12)
    sending.deliver_batch()
    assert standing(sending, "quick") is None
    assert standing(sending, "note") is None


def test_chunks_of_one_target_do_not_wait_for_one_another(sending: Sending) -> None:
    """It has its batch to itself, in two pushes: none is kept waiting, and a retry may be waited for."""
    policy = "{policy: custom, max_retries: 5, initial_delay: 1s, multiplier: 1, max_delay: 1s}"
    settings = {"chunk_max_deliveries": 8}
    sending.begin(16, settings=settings, crm=http("/flaky/halves", retry=policy))

    batch_id = sending.deliver_batch()

    assert batch_id is not None
    assert len(sending.runtime.ledger.chunks.list_for_batch(batch_id)) == 2
    assert set(received(sending, "/flaky/halves").values()) == {3}


@pytest.mark.parametrize("beside", [{}, {"note": "/healthy/note"}])
def test_a_retry_is_waited_for_only_while_others_are_at_work(sending: Sending, beside: dict[str, str]) -> None:
    """Else the slow lane makes it; what is tried again there is nothing against the target before it is."""
    policy = "{policy: custom, max_retries: 5, initial_delay: 1s, multiplier: 1, max_delay: 1s}"
    runtime = sending.begin(12, crm=http("/flaky/beside" + "".join(beside), retry=policy), **beside)

    batch_id = sending.deliver_batch()

    assert batch_id is not None
    waited_for = {row.status for row in settled(runtime, batch_id)["crm"]} == {"delivered"}
    assert waited_for is not bool(beside)
    found = standing(sending)
    assert found is None or found.state == "ok"


def test_a_run_that_waits_for_a_retry_is_woken_when_the_others_are_done(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push ends with the last target at work, not at the end of a pause: the slow lane makes the retry."""
    monkeypatch.setattr(run, "SLEEP_SECONDS", 3_600.0)
    policy = "{policy: custom, max_retries: 5, initial_delay: 1s, multiplier: 1, max_delay: 1s}"
    sending.begin(12, crm=http("/flaky/answered", retry=policy), note="/delay/200")

    sending.deliver_batch()

    assert set(received(sending, "/flaky/answered").values()) == {1}


def test_the_idle_time_of_a_target_is_not_counted_as_slowness(sending: Sending) -> None:
    """Half of the others are done at once, one takes longer than the two seconds of its retries: no target waited."""
    policy = "{policy: custom, max_retries: 5, initial_delay: 1s, multiplier: 1, max_delay: 1s}"
    late = http("/delay/3500", timeout="10s")
    runtime = sending.begin(12, crm=http("/flaky/rests", retry=policy), late=late, note="/healthy/note")

    batch_id = sending.deliver_batch()

    assert batch_id is not None
    assert {row.status for row in settled(runtime, batch_id)["crm"]} == {"delivered"}
    assert set(received(sending, "/flaky/rests").values()) == {3}
    found = standing(sending)
    assert found is None or found.state == "ok"


def test_a_retry_is_not_waited_for_because_another_push_is_at_work(sending: Sending) -> None:
    """That one may only wait too, and the batch for both: each push counts only its own targets."""
    policy = "{policy: custom, max_retries: 5, initial_delay: 1s, multiplier: 1, max_delay: 1s}"
    targets = {"crm": http("/flaky/apart", retry=policy), "note": "/healthy/note"}
    batch = sending.routed(12, settings={"chunk_max_deliveries": 12}, **targets)
    crm, note = sorted(
        sending.runtime.ledger.chunks.list_for_batch(batch.batch_id), key=lambda chunk: chunk.pieces[0].target
    )

    sending.runtime.ledger.chunks.claim(batch.batch_id, note.chunk_id, "elsewhere:17")

    push(sending.runtime, batch.batch_id, crm.chunk_id)

    assert set(received(sending, "/flaky/apart").values()) == {1}


def test_a_target_that_is_slow_by_its_own_rate_is_neither_waited_for_nor_degraded(sending: Sending) -> None:
    """What its rate does not let through at once waits in the slow lane, untried."""
    runtime = sending.begin(40, crm=http("/healthy/crm", rate="5/s"), note="/healthy/note")

    batch_id = sending.deliver_batch()

    assert batch_id is not None
    assert standing(sending) is None
    rows = Counter(row.status for row in settled(runtime, batch_id)["crm"])
    assert set(rows) == {"delivered", "unknown"}
    assert rows["unknown"] >= 20, "at five a second the batch would have lasted seven seconds"


def test_an_ordered_target_that_hangs_costs_its_runner_one_time_out_once(sending: Sending, clock: RunningClock) -> None:
    """What is not sent waits by key in the slow lane, and comes once and in order when the target is healthy again."""
    quick = http("/healthy/crm", ordering_key="$.source")
    runtime = sending.begin(2, crm=http("/hang/crm", timeout="3s", ordering_key="$.source"), note="/healthy/note")

    first = sending.deliver_batch()
    sending.publish(4)
    began = time.monotonic()
    second = sending.deliver_batch()
    second_seconds = time.monotonic() - began

    assert first is not None
    assert second is not None
    assert second_seconds < 3
    assert received(sending, "/hang/crm").total() == 1, "the first of the one key"
    assert {row.status for row in settled(runtime, second)["crm"]} == {"unknown"}
    hanging = standing(sending)
    assert hanging is not None
    assert (hanging.state, hanging.slow) == ("degraded", True)

    sending.rules(crm=quick, note="/healthy/note")
    clock.advance(7_300)
    sending.deliver()
    assert set(received(sending, "/healthy/crm").values()) == {1}
    assert delivered(sending) == {"crm": 6, "note": 6}


def test_an_ordered_target_that_is_slow_heals_in_the_slow_lane(sending: Sending, clock: RunningClock) -> None:
    """Five quick chunks bring it back, and it gets its deliveries with the others again."""
    sending.begin(1, crm=http("/hang/crm", timeout="1s", ordering_key="$.source"), note="/healthy/note")
    sending.deliver_batch()
    assert getattr(standing(sending), "slow", None) is True

    sending.rules(crm=http("/healthy/crm", ordering_key="$.source"), note="/healthy/note")
    clock.advance(7_300)
    for _ in range(5):
        sending.deliver()
        sending.publish(1)
        sending.deliver_batch()

    healed = standing(sending)
    assert healed is not None
    assert (healed.state, healed.reason) == ("ok", "5 chunks in a row were quick")
    sending.deliver()
    assert set(received(sending, "/healthy/crm").values()) == {1}
    assert delivered(sending) == {"crm": 6, "note": 6}
