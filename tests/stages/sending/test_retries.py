"""Retry batches: what is parked comes back when it is due, uses today's rules, and its books balance too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from stages.delivering import RUNNER, RunningClock, http, rules

from eventbridge.flow import PoolSlots
from eventbridge.stages.audit import audit
from eventbridge.stages.commit import commit
from eventbridge.stages.dead_letters import write_dead_letters
from eventbridge.stages.deliver import deliver_retries, deliver_until_idle
from eventbridge.stages.enable import enable_target
from eventbridge.stages.push import push
from eventbridge.stages.records import dead_letters
from eventbridge.stages.retries import plan_retries, settle_stale
from eventbridge.stages.route_in_process import InProcessRouter
from eventbridge.stages.schedule_retries import schedule_retries
from eventbridge.testing.receiver import Receiver

Order = Callable[..., bytes]
REFUSED = "http://127.0.0.1:1/refused"
#: Rule files without the rule `orders`.
REMOVED = rules(crm=http(REFUSED)).replace("\n  orders:\n    bus", "\n  other:\n    bus")


def _deliver(work: Any) -> None:
    deliver_until_idle(work, RUNNER, InProcessRouter(work.store))


def test_parked_deliveries_come_back_when_they_are_due(
    site: Any, order: Order, receiver: Receiver, clock: RunningClock
) -> None:
    """Refused at first, delivered an hour later by today's URL; the audit follows both generations."""
    site.write_rules(rules(crm=http(REFUSED)))
    site.publish(*(order(number) for number in range(8)))
    work = site.work
    _deliver(work)
    site.write_rules(rules(crm=http(receiver.url("/healthy/crm"))))
    assert plan_retries(work, RUNNER).batch_id is None, "nothing is due yet"

    clock.advance(2 * 3600)
    _deliver(work)

    books = audit(work)
    assert books.differences == ()
    assert books.deliveries["orders/crm"] == {"matched": 8, "delivered": 8, "dead": 0, "parked": 0}
    assert len({request["webhook_id"] for request in receiver.requests()}) == 8
    assert {row.state for row in work.ledger.parked()} == {"closed"}


def test_after_its_attempts_a_delivery_is_a_dead_letter_with_all_of_them(
    site: Any, order: Order, clock: RunningClock
) -> None:
    """Three retries after the first attempt, over four batches; the record holds the four attempts in order."""
    site.write_rules(rules(crm=http(REFUSED)))
    site.publish(order(1))
    work = site.work
    for _ in range(5):
        _deliver(work)
        clock.advance(2 * 3600)

    (record,) = list(dead_letters(work, whole=True))

    assert record["reason"] == "MaximumRetryAttempts"
    assert [attempt["number"] for attempt in record["attempts"]] == [1, 2, 3, 4]
    assert record["first_attempt_at"] < record["last_attempt_at"]
    assert audit(work).differences == ()


def test_what_outlives_its_maximum_age_is_a_dead_letter(site: Any, order: Order, clock: RunningClock) -> None:
    """A parked delivery whose age ends while it waits is given up without another send."""
    site.write_rules(rules(crm=http(REFUSED)))
    site.publish(order(1))
    work = site.work
    _deliver(work)
    clock.advance(25 * 3600)

    _deliver(work)

    (record,) = list(dead_letters(work, whole=True))
    assert record["reason"] == "MaximumEventAge"
    assert len(record["attempts"]) == 1


def test_two_plans_at_once_take_a_row_once(site: Any, order: Order, clock: RunningClock) -> None:
    """What one retry batch has taken, another does not get."""
    site.write_rules(rules(crm=http(REFUSED)))
    site.publish(*(order(number) for number in range(3)))
    work = site.work
    _deliver(work)
    clock.advance(2 * 3600)

    first = plan_retries(work, RUNNER)
    second = plan_retries(site.reopen(), RUNNER)

    assert first.batch_id is not None
    assert second.batch_id is None


def test_a_retry_batch_whose_run_died_is_settled_by_a_later_one(
    site: Any, order: Order, receiver: Receiver, clock: RunningClock
) -> None:
    """Planned and never pushed, it is settled past its deadline and its deliveries are parked again."""
    site.write_rules(rules(crm=http(REFUSED)))
    site.publish(*(order(number) for number in range(3)))
    work = site.work
    _deliver(work)
    site.write_rules(rules(crm=http(receiver.url("/healthy/crm"))))
    clock.advance(2 * 3600)
    plan = plan_retries(work, RUNNER)
    assert settle_stale(work, RUNNER) == [], "its run may still be at work"

    clock.advance(120)
    settled = settle_stale(work, RUNNER)
    _deliver(work)

    assert settled == [plan.batch_id]
    assert audit(work).deliveries["orders/crm"]["delivered"] == 3
    assert audit(work).differences == ()


def test_until_idle_waits_for_what_a_dead_run_took_up_without_burning_cpu(
    site: Any, order: Order, receiver: Receiver, clock: RunningClock
) -> None:
    """Deliveries that are due but taken by another batch are waited for, patiently, and then delivered."""
    site.write_rules(rules(crm=http(REFUSED)))
    site.publish(*(order(number) for number in range(3)))
    work = site.work
    _deliver(work)
    site.write_rules(rules(crm=http(receiver.url("/healthy/crm"))))
    clock.advance(2 * 3600)
    assert plan_retries(work, RUNNER).batch_id is not None, "its process dies here"
    threading.Timer(2.0, clock.advance, [120]).start()
    began = time.process_time()

    _deliver(work)

    assert len(receiver.requests()) == 3
    assert time.process_time() - began < 2.0


def test_a_disabled_rule_holds_its_deliveries_and_lets_go_of_them(
    site: Any, order: Order, receiver: Receiver, clock: RunningClock
) -> None:
    """While a rule is disabled nothing of it is sent, and the time it waited does not count towards its age."""
    site.write_rules(rules(crm=http(REFUSED)))
    site.publish(order(1))
    work = site.work
    _deliver(work)
    healthy = rules(crm=http(receiver.url("/healthy/crm")))
    site.write_rules(healthy.replace("    bus: orders\n", "    bus: orders\n    enabled: false\n"))
    clock.advance(2 * 3600)
    _deliver(work)
    (held,) = [row for row in work.ledger.parked() if row.state != "closed"]
    assert (held.state, held.held) == ("held", "rule disabled")

    clock.advance(30 * 3600)
    site.write_rules(healthy)
    _deliver(work)

    assert len(receiver.requests()) == 1
    assert audit(work).deliveries["orders/crm"]["delivered"] == 1


def test_a_removed_rule_holds_for_an_hour_and_then_gives_up(site: Any, order: Order, clock: RunningClock) -> None:
    """Deliveries of a rule no file names are held for 1 h, then dead letters RuleRemoved."""
    site.write_rules(rules(crm=http(REFUSED)))
    site.publish(order(1))
    work = site.work
    _deliver(work)
    site.write_rules(REMOVED)
    clock.advance(2 * 3600)
    deliver_retries(work, RUNNER, _never())
    (held,) = [row for row in work.ledger.parked() if row.state != "closed"]
    assert held.held == "rule removed"
    assert list(dead_letters(work)) == []

    clock.advance(3700)
    deliver_retries(work, RUNNER, _never())

    (record,) = list(dead_letters(work))
    assert record["reason"] == "RuleRemoved"
    assert audit(work).differences == ()


def test_all_of_a_removed_rule_is_given_up_after_its_hour_batch_upon_batch(
    site: Any, order: Order, clock: RunningClock
) -> None:
    """Five chunks' worth of deliveries need five batches and one hour, not five."""
    site.write_rules(rules(crm=http(REFUSED)))
    site.publish(*(order(number) for number in range(10)))
    work = site.reopen(chunk_max_deliveries=2)
    _deliver(work)
    site.write_rules(REMOVED)
    deliver_retries(work, RUNNER, _never())
    clock.advance(3700)

    batches = 0
    while deliver_retries(work, RUNNER, _never()) is not None:
        batches += 1

    assert [record["reason"] for record in dead_letters(work)] == ["RuleRemoved"] * 10
    assert batches >= 5
    assert audit(work).differences == ()


def test_a_removed_rule_that_comes_back_keeps_what_was_not_given_up_yet(
    site: Any, order: Order, receiver: Receiver, clock: RunningClock
) -> None:
    """While chunk after chunk is given up the rule is there again: the rest is delivered."""
    site.write_rules(rules(crm=http(REFUSED)))
    site.publish(*(order(number) for number in range(10)))
    work = site.reopen(chunk_max_deliveries=2)
    _deliver(work)
    site.write_rules(REMOVED)
    deliver_retries(work, RUNNER, _never())
    clock.advance(3700)
    deliver_retries(work, RUNNER, _never())
    site.write_rules(rules(crm=http(receiver.url("/healthy/crm"))))

    _deliver(work)

    given_up = len(list(dead_letters(work)))
    assert 1 <= given_up <= 2
    assert len(receiver.requests()) == 10 - given_up
    assert audit(work).differences == ()


def test_a_rule_removed_while_it_was_disabled_has_its_hour_too(site: Any, order: Order, clock: RunningClock) -> None:
    """Held for one reason and then for another, its deliveries are never due in between."""
    site.write_rules(rules(crm=http(REFUSED)))
    site.publish(order(1))
    work = site.work
    _deliver(work)
    site.write_rules(rules(crm=http(REFUSED)).replace("    bus: orders\n", "    bus: orders\n    enabled: false\n"))
    clock.advance(2 * 3600)
    deliver_retries(work, RUNNER, _never())
    site.write_rules(REMOVED)

    assert deliver_retries(work, RUNNER, _never()) is None
    assert [row.held for row in work.ledger.parked(state="held")] == ["rule removed"]
    clock.advance(3700)
    deliver_retries(work, RUNNER, _never())
    assert [record["reason"] for record in dead_letters(work)] == ["RuleRemoved"]


def test_a_removed_rule_gives_up_what_it_held_for_a_disabled_target(
    site: Any, order: Order, receiver: Receiver, clock: RunningClock
) -> None:
    """Nobody will enable the target of a rule that is gone: an hour is enough, not the deliveries' age."""
    gone = http(receiver.url("/gone/crm")).replace("timeout: 1s", "timeout: 1s, max_in_flight: 1")
    site.write_rules(rules(crm=gone))
    site.publish(*(order(number) for number in range(5)))
    work = site.work
    _deliver(work)
    site.write_rules(REMOVED)
    assert deliver_retries(work, RUNNER, _never()) is None
    clock.advance(3700)

    deliver_retries(work, RUNNER, _never())

    assert {record["reason"] for record in dead_letters(work)} == {"TargetGone", "RuleRemoved"}
    assert len(list(dead_letters(work))) == 5


def test_a_closed_pool_holds_the_retries_of_its_rules(site: Any, order: Order, clock: RunningClock) -> None:
    """A pool of 0 slots holds what is parked for its rules; opened again, it lets go."""
    site.write_rules(rules(crm=http(REFUSED)))
    site.publish(order(1))
    work = site.work
    _deliver(work)
    clock.advance(2 * 3600)

    closed = plan_retries(work, RUNNER, {"rules.medium": PoolSlots(0, 0)})
    held = [row.held for row in work.ledger.parked() if row.state == "held"]
    opened = plan_retries(work, RUNNER, {"rules.medium": PoolSlots(4, 4)})

    assert closed.batch_id is None
    assert held == ["pool closed"]
    assert opened.batch_id is not None


def test_enabling_a_target_lets_go_of_what_was_held(
    site: Any, order: Order, receiver: Receiver, clock: RunningClock
) -> None:
    """After 410 the rest is held; `targets enable` makes it due, under the same delivery ids."""
    gone = http(receiver.url("/gone/crm")).replace("timeout: 1s", "timeout: 1s, max_in_flight: 1")
    site.write_rules(rules(crm=gone))
    site.publish(*(order(number) for number in range(10)))
    work = site.work
    _deliver(work)
    clock.advance(60)
    assert deliver_retries(work, RUNNER, _never()) is None, "a disabled target gets nothing"
    site.write_rules(rules(crm=http(receiver.url("/healthy/crm"))))

    released = enable_target(work, "orders", "crm")
    _deliver(work)

    books = audit(work).deliveries["orders/crm"]
    assert released >= 8
    assert books["delivered"] == released
    assert books["delivered"] + books["dead"] == 10


def test_what_is_held_for_a_target_that_is_gone_ends_at_its_age(
    site: Any, order: Order, receiver: Receiver, clock: RunningClock
) -> None:
    """The wait for `targets enable` counts towards the age: after 24 h the deliveries are dead letters, unsent."""
    gone = http(receiver.url("/gone/crm")).replace("timeout: 1s", "timeout: 1s, max_in_flight: 1")
    site.write_rules(rules(crm=gone))
    site.publish(*(order(number) for number in range(5)))
    work = site.work
    _deliver(work)
    sent = len(receiver.requests())
    clock.advance(25 * 3600)

    _deliver(work)

    reasons = [record["reason"] for record in dead_letters(work)]
    assert len(reasons) == 5
    assert "MaximumEventAge" in reasons
    assert len(receiver.requests()) == sent


def test_a_degraded_target_gets_one_retry_chunk_at_a_time_until_it_heals(
    site: Any, order: Order, receiver: Receiver, clock: RunningClock
) -> None:
    """Its new deliveries are not pushed but parked; one chunk is out at a time; a good one restores it."""
    site.write_rules(rules(crm=http(receiver.url("/hang/crm"))))
    site.publish(*(order(number) for number in range(100)))
    work = site.reopen(push_budget_seconds=1, retry_max_per_target=1)
    _deliver_once(work)
    assert work.ledger.target_statuses()["orders", "crm"].state == "degraded"
    sent = len(receiver.requests())
    site.publish(*(order(number) for number in range(100, 110)))
    _deliver_once(work)
    assert len(receiver.requests()) == sent, "new deliveries of a degraded target are not handed out"

    site.write_rules(rules(crm=http(receiver.url("/healthy/crm"))))
    clock.advance(2 * 3600)
    first = plan_retries(work, RUNNER)
    assert plan_retries(work, RUNNER).batch_id is None
    _settle(work, first)
    _deliver(work)

    assert work.ledger.target_statuses()["orders", "crm"].state == "ok"
    assert audit(work).deliveries["orders/crm"]["delivered"] == 110
    assert audit(work).differences == ()


def _deliver_once(work: Any) -> None:
    from eventbridge.stages.deliver import deliver_batch

    assert deliver_batch(work, RUNNER, InProcessRouter(work.store), _never()) is not None


def _settle(work: Any, plan: Any) -> None:
    for chunk_id in plan.chunk_ids:
        push(work, plan.batch_id, chunk_id)
    write_dead_letters(work, plan.batch_id)
    schedule_retries(work, plan.batch_id)
    assert commit(work, plan.batch_id)


def _never() -> Any:
    import threading

    return threading.Event()
