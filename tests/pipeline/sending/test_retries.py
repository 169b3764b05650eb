"""Retry batches redeliver pending deliveries when they are due, with the current rules, and are reconciled."""

from __future__ import annotations

import threading
import time
from typing import Any

from pipeline.delivering import REFUSED, RUNNER, RunningClock, Sending, http
from stored import dead_letters

from eventbridge.control.overrides import enable_target
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.retry.plan import RetryPlan, plan_retries, settle_stale
from eventbridge.policy.chunking import PoolSlots
from eventbridge.repair.audit import audit


def test_pending_deliveries_come_back_when_they_are_due(sending: Sending, clock: RunningClock) -> None:
    """Refused deliveries are delivered an hour later to the current URL, and the audit checks both batches."""
    runtime = sending.begin(8, crm=REFUSED)
    sending.deliver()
    sending.rules(crm="/healthy/crm")
    assert plan_retries(runtime, RUNNER).batch_id is None, "nothing is due yet"

    clock.advance(2 * 3600)
    sending.deliver()

    reconciliation = audit(runtime)
    assert reconciliation.differences == ()
    assert reconciliation.deliveries["orders/crm"] == {"matched": 8, "delivered": 8, "dead_lettered": 0, "pending": 0}
    assert len({request["webhook_id"] for request in sending.requests()}) == 8
    assert {row.state for row in runtime.ledger.pending.find()} == {"closed"}


def test_after_its_attempts_a_delivery_is_a_dead_letter_with_all_of_them(sending: Sending, clock: RunningClock) -> None:
    """After three retries in four batches, the dead letter's record has the four attempts in order."""
    runtime = sending.begin(1, crm=REFUSED)
    for _ in range(5):
        sending.deliver()
        clock.advance(2 * 3600)

    (record,) = list(dead_letters(runtime, whole=True))

    assert record["reason"] == "maximum_retry_attempts"
    assert [attempt["number"] for attempt in record["attempts"]] == [1, 2, 3, 4]
    assert record["first_attempt_at"] < record["last_attempt_at"]
    assert audit(runtime).differences == ()


def test_a_delivery_past_its_maximum_age_is_a_dead_letter(sending: Sending, clock: RunningClock) -> None:
    """A pending delivery that exceeds its maximum age is dead-lettered without another send."""
    runtime = sending.begin(1, crm=REFUSED)
    sending.deliver()
    clock.advance(25 * 3600)

    sending.deliver()

    (record,) = list(dead_letters(runtime, whole=True))
    assert record["reason"] == "maximum_event_age"
    assert len(record["attempts"]) == 1


def test_two_plans_at_once_take_a_row_once(sending: Sending, site: Any, clock: RunningClock) -> None:
    """Of two concurrent plans, only one takes each pending row."""
    runtime = sending.begin(3, crm=REFUSED)
    sending.deliver()
    clock.advance(2 * 3600)

    first = plan_retries(runtime, RUNNER)
    second = plan_retries(site.reopen(), RUNNER)

    assert first.batch_id is not None
    assert second.batch_id is None


def test_a_retry_batch_whose_run_died_is_settled_by_a_later_one(sending: Sending, clock: RunningClock) -> None:
    """A retry batch that was never pushed is settled after its deadline, and its deliveries become pending again."""
    runtime = sending.begin(3, crm=REFUSED)
    sending.deliver()
    sending.rules(crm="/healthy/crm")
    clock.advance(2 * 3600)
    plan = plan_retries(runtime, RUNNER)
    assert settle_stale(runtime, RUNNER) == [], "its run may still be at work"

    clock.advance(120)
    settled = settle_stale(runtime, RUNNER)
    sending.deliver()

    assert settled == [plan.batch_id]
    assert audit(runtime).deliveries["orders/crm"]["delivered"] == 3
    assert audit(runtime).differences == ()


def test_until_idle_waits_for_what_a_dead_run_took_up_without_burning_cpu(
    sending: Sending, clock: RunningClock
) -> None:
    """`--until-idle` waits without busy polling for due deliveries that another batch has, and then delivers them."""
    runtime = sending.begin(3, crm=REFUSED)
    sending.deliver()
    sending.rules(crm="/healthy/crm")
    clock.advance(2 * 3600)
    assert plan_retries(runtime, RUNNER).batch_id is not None, "its process dies here"
    threading.Timer(2.0, clock.advance, [120]).start()
    began = time.process_time()

    sending.deliver()

    assert len(sending.requests()) == 3
    assert time.process_time() - began < 2.0


def test_a_disabled_rule_holds_its_deliveries_and_releases_them(sending: Sending, clock: RunningClock) -> None:
    """While a rule is disabled nothing of it is sent, and the time it waited does not count towards its age."""
    runtime = sending.begin(1, crm=REFUSED)
    sending.deliver()
    sending.disable(crm="/healthy/crm")
    clock.advance(2 * 3600)
    sending.deliver()
    (held,) = [row for row in runtime.ledger.pending.find() if row.state != "closed"]
    assert (held.state, held.hold_reason) == ("on_hold", "rule disabled")

    clock.advance(30 * 3600)
    sending.rules(crm="/healthy/crm")
    sending.deliver()

    assert len(sending.requests()) == 1
    assert audit(runtime).deliveries["orders/crm"]["delivered"] == 1


def test_a_removed_rule_holds_for_an_hour_and_then_dead_letters(sending: Sending, clock: RunningClock) -> None:
    """Deliveries of a removed rule are on hold for 1 h, and then become dead letters `rule_removed`."""
    runtime = sending.begin(1, crm=REFUSED)
    sending.deliver()
    sending.remove()
    clock.advance(2 * 3600)
    sending.retry()
    (held,) = [row for row in runtime.ledger.pending.find() if row.state != "closed"]
    assert held.hold_reason == "rule removed"
    assert list(dead_letters(runtime)) == []

    clock.advance(3700)
    sending.retry()

    (record,) = list(dead_letters(runtime))
    assert record["reason"] == "rule_removed"
    assert audit(runtime).differences == ()


def test_all_of_a_removed_rule_is_dead_lettered_after_its_hour_batch_upon_batch(
    sending: Sending, clock: RunningClock
) -> None:
    """Five chunks' worth of deliveries need five batches and one hour, not five."""
    runtime = sending.begin(10, settings={"chunk_max_deliveries": 2}, crm=REFUSED)
    sending.deliver()
    sending.remove()
    sending.retry()
    clock.advance(3700)

    batches = 0
    while sending.retry() is not None:
        batches += 1

    assert [record["reason"] for record in dead_letters(runtime)] == ["rule_removed"] * 10
    assert batches >= 5
    assert audit(runtime).differences == ()


def test_a_removed_rule_that_comes_back_keeps_what_was_not_dead_lettered_yet(
    sending: Sending, clock: RunningClock
) -> None:
    """If a removed rule returns while its chunks are dead-lettered, the rest is delivered."""
    runtime = sending.begin(10, settings={"chunk_max_deliveries": 2}, crm=REFUSED)
    sending.deliver()
    sending.remove()
    sending.retry()
    clock.advance(3700)
    sending.retry()
    sending.rules(crm="/healthy/crm")

    sending.deliver()

    given_up = len(list(dead_letters(runtime)))
    assert 1 <= given_up <= 2
    assert len(sending.requests()) == 10 - given_up
    assert audit(runtime).differences == ()


def test_a_rule_removed_while_it_was_disabled_has_its_hour_too(sending: Sending, clock: RunningClock) -> None:
    """Deliveries that are on hold first as disabled and then as removed are never due in between."""
    runtime = sending.begin(1, crm=REFUSED)
    sending.deliver()
    sending.disable(crm=REFUSED)
    clock.advance(2 * 3600)
    sending.retry()
    sending.remove()

    assert sending.retry() is None
    assert [row.hold_reason for row in runtime.ledger.pending.find(state="on_hold")] == ["rule removed"]
    clock.advance(3700)
    sending.retry()
    assert [record["reason"] for record in dead_letters(runtime)] == ["rule_removed"]


def test_a_removed_rule_dead_letters_what_it_held_for_a_disabled_target(sending: Sending, clock: RunningClock) -> None:
    """A removed rule's deliveries for a disabled target wait only an hour, because no operator will enable it."""
    runtime = sending.begin(5, crm=http("/gone/crm", max_in_flight=1))
    sending.deliver()
    sending.remove()
    assert sending.retry() is None
    clock.advance(3700)

    sending.retry()

    assert {record["reason"] for record in dead_letters(runtime)} == {"target_gone", "rule_removed"}
    assert len(list(dead_letters(runtime))) == 5


def test_a_closed_pool_holds_the_retries_of_its_rules(sending: Sending, clock: RunningClock) -> None:
    """A pool of 0 slots puts its rules' pending deliveries on hold; opened again, it releases them."""
    runtime = sending.begin(1, crm=REFUSED)
    sending.deliver()
    clock.advance(2 * 3600)

    closed = plan_retries(runtime, RUNNER, {"eventbridge.medium": PoolSlots(0, 0)})
    held = [row.hold_reason for row in runtime.ledger.pending.find() if row.state == "on_hold"]
    opened = plan_retries(runtime, RUNNER, {"eventbridge.medium": PoolSlots(4, 4)})

    assert closed.batch_id is None
    assert held == ["pool closed"]
    assert opened.batch_id is not None


def test_enabling_a_target_releases_what_was_held(sending: Sending, clock: RunningClock) -> None:
    """`targets enable` makes the deliveries that are on hold after a 410 due, with the same delivery ids."""
    runtime = sending.begin(10, crm=http("/gone/crm", max_in_flight=1))
    sending.deliver()
    clock.advance(60)
    assert sending.retry() is None, "a disabled target gets nothing"
    sending.rules(crm="/healthy/crm")

    released = enable_target(runtime, "orders", "crm")
    sending.deliver()

    reconciliation = audit(runtime).deliveries["orders/crm"]
    assert released >= 8
    assert reconciliation["delivered"] == released
    assert reconciliation["delivered"] + reconciliation["dead_lettered"] == 10


def test_deliveries_on_hold_after_a_410_end_at_their_age(sending: Sending, clock: RunningClock) -> None:
    """The wait for `targets enable` counts towards the age: after 24 h the deliveries are dead letters, unsent."""
    runtime = sending.begin(5, crm=http("/gone/crm", max_in_flight=1))
    sending.deliver()
    sent = len(sending.requests())
    clock.advance(25 * 3600)

    sending.deliver()

    reasons = [record["reason"] for record in dead_letters(runtime)]
    assert len(reasons) == 5
    assert "maximum_event_age" in reasons
    assert len(sending.requests()) == sent


def test_a_degraded_target_gets_one_retry_chunk_at_a_time_until_it_heals(sending: Sending, clock: RunningClock) -> None:
    """A degraded target's new deliveries are pending, one chunk is sent at a time, and a good one heals the target."""
    runtime = sending.begin(100, settings={"push_timeout": 1, "retry_max_per_target": 1}, crm="/hang/crm")
    sending.deliver_batch()
    assert runtime.ledger.targets.statuses()["orders", "crm"].state == "degraded"
    sent = len(sending.requests())
    sending.publish(10)
    sending.deliver_batch()
    assert len(sending.requests()) == sent, "new deliveries of a degraded target are not handed out"

    sending.rules(crm="/healthy/crm")
    clock.advance(2 * 3600)
    first = plan_retries(runtime, RUNNER)
    assert plan_retries(runtime, RUNNER).batch_id is None
    _settle(sending, first)
    sending.deliver()

    assert runtime.ledger.targets.statuses()["orders", "crm"].state == "ok"
    assert audit(runtime).deliveries["orders/crm"]["delivered"] == 110
    assert audit(runtime).differences == ()


def test_a_retry_run_takes_so_many_deliveries_of_a_target(sending: Sending) -> None:
    """The setting counts deliveries, not rows of the ledger, and a row is never divided."""
    batch = sending.routed(30, settings={"chunk_max_deliveries": 10, "retry_max_per_target": 20}, crm="/healthy/crm")
    sending.settle(batch)
    assert commit(sending.runtime, batch.batch_id)
    runtime = sending.site.reopen(retry_max_per_target=25)

    plan = plan_retries(runtime, RUNNER)

    (chunk,) = runtime.ledger.chunks.list_for_batch(str(plan.batch_id))
    assert len(runtime.ledger.pending.find()) < 25
    assert 15 < chunk.rows <= 25


def _settle(sending: Sending, plan: RetryPlan) -> None:
    assert plan.batch_id is not None
    batch = sending.runtime.ledger.batches.get(plan.batch_id)
    sending.push(batch)
    sending.settle(batch)
    assert commit(sending.runtime, batch.batch_id)
