"""Overrides apply from the next task on, and affect nothing else."""

from __future__ import annotations

import threading

import pytest
from pipeline.delivering import RunningClock, Sending
from pipeline.ordering import Recorder, keyed, ordered, publish

from eventbridge.control.overrides import operate
from eventbridge.errors import NotFoundError, UserError
from eventbridge.model.batch import Batch
from eventbridge.model.pending import POOL_CLOSED, TARGET_PAUSED
from eventbridge.repair.audit import audit
from eventbridge.views.status import status
from eventbridge.views.target_status import target_list


def paths(sending: Sending) -> dict[str, int]:
    """Return how many requests each path got."""
    found: dict[str, int] = {}
    for request in sending.requests():
        found[request["path"]] = found.get(request["path"], 0) + 1
    return found


def test_a_paused_rule_is_matched_and_its_deliveries_wait(sending: Sending) -> None:
    """Its batch commits, nothing is sent; resumed, all of it goes, none lost and none twice, and nothing has aged."""
    runtime = sending.begin(10, crm="/healthy/crm")
    assert operate(runtime, "pause rule", "orders", by="ada").changed
    assert sending.deliver_batch()

    assert paths(sending) == {}
    (pending,) = status(runtime).pending
    assert (pending.state, pending.hold_reason, pending.count) == ("on_hold", "rule paused", 10)
    (said,) = status(runtime).overrides
    assert (said.rule, said.target, said.kind, said.set_by) == ("orders", "", "paused", "ada")
    sending.deliver()
    assert paths(sending) == {}

    assert operate(runtime, "resume rule", "orders").released == 10
    sending.deliver()

    assert paths(sending) == {"/healthy/crm": 10}
    assert status(runtime).overrides == ()
    assert audit(runtime).differences == ()


def test_a_paused_target_waits_and_its_neighbour_does_not(sending: Sending) -> None:
    """One target's deliveries are on hold, the other's arrive in the same batch."""
    runtime = sending.begin(10, crm="/healthy/crm", note="/healthy/note")
    operate(runtime, "pause target", "orders", "crm")
    assert sending.deliver_batch()
    assert paths(sending) == {"/healthy/note": 10}
    assert {line.target: line.hold_reason for line in target_list(runtime)} == {"crm": "target paused", "note": ""}

    operate(runtime, "resume target", "orders", "crm")
    sending.deliver()

    assert paths(sending) == {"/healthy/note": 10, "/healthy/crm": 10}
    assert audit(runtime).differences == ()


def test_a_target_that_is_kept_waiting_is_not_shown_as_ok(sending: Sending) -> None:
    """It is paused, with the reason: an operator, or a pool without slots."""
    runtime = sending.begin(1, crm="/status/503", note="/healthy/note")
    sending.deliver_batch()
    runtime.ledger.pending.hold("orders", "crm", POOL_CLOSED)
    operate(runtime, "pause target", "orders", "note", by="ada")
    shown = {line.target: (line.state, line.hold_reason) for line in target_list(runtime)}

    assert shown == {"crm": ("paused", POOL_CLOSED), "note": ("paused", TARGET_PAUSED)}


def test_a_pause_holds_at_the_start_of_the_next_push_of_a_batch_that_is_routed(sending: Sending) -> None:
    """What was cut for a push before the pause is not sent by it; settlement holds it."""
    batch = sending.routed(10, crm="/healthy/crm")
    operate(sending.runtime, "pause rule", "orders")

    sending.push(batch)
    sending.settle(batch)

    assert paths(sending) == {}
    assert {row.hold_reason for row in sending.runtime.ledger.pending.find()} == {"rule paused"}


def test_a_disabled_rule_lets_events_pass(sending: Sending) -> None:
    """Nothing is matched while it is disabled; enabled again, it matches new events."""
    runtime = sending.begin(4, crm="/healthy/crm")
    operate(runtime, "disable rule", "orders")
    assert sending.deliver_batch()
    operate(runtime, "enable rule", "orders")
    sending.publish(3)
    sending.deliver()

    assert paths(sending) == {"/healthy/crm": 3}
    assert audit(runtime).deliveries["orders/crm"]["matched"] == 3
    assert audit(runtime).differences == ()


def test_another_priority_moves_a_rule_to_that_priority_s_pool(sending: Sending) -> None:
    """Chunks that are cut from then on have its pool and weight, until it is cleared."""
    runtime = sending.begin(4, crm="/healthy/crm")
    operate(runtime, "set priority", "orders", value="high")
    batch = sending.routed(0, crm="/healthy/crm")
    assert {(chunk.pool, chunk.weight) for chunk in runtime.ledger.chunks.list_for_batch(batch.batch_id)} == {
        ("eventbridge.high", 750)
    }
    sending.push(batch)
    sending.deliver()

    operate(runtime, "clear priority", "orders")
    batch = sending.routed(4, crm="/healthy/crm")
    assert {(chunk.pool, chunk.weight) for chunk in runtime.ledger.chunks.list_for_batch(batch.batch_id)} == {
        ("eventbridge.medium", 500)
    }


def test_another_rate_bounds_what_a_target_gets(sending: Sending) -> None:
    """At 10 a second for a budget of a second most of 100 deliveries wait; without it all arrive."""
    runtime = sending.begin(100, settings={"push_timeout": 1}, crm="/healthy/crm")
    operate(runtime, "set rate", "orders", "crm", "10/s")
    assert sending.deliver_batch()
    assert 1 <= paths(sending)["/healthy/crm"] <= 30

    operate(runtime, "clear rate", "orders", "crm")
    sending.deliver()

    assert paths(sending) == {"/healthy/crm": 100}


def push_at_two_a_second(sending: Sending) -> tuple[Batch, threading.Thread]:
    """Return a batch of 100 deliveries, and the thread of its push, which has sent the first of them."""
    batch = sending.routed(100, crm="/healthy/crm")
    operate(sending.runtime, "set rate", "orders", "crm", "2/s")
    pushing = threading.Thread(target=sending.push, args=(batch,))
    pushing.start()
    while not paths(sending):
        pushing.join(0.05)
    return batch, pushing


def test_a_push_in_progress_applies_another_rate(sending: Sending) -> None:
    """What would take longer than its budget at the old rate arrives within a moment at the new one."""
    _, pushing = push_at_two_a_second(sending)

    operate(sending.runtime, "clear rate", "orders", "crm")
    pushing.join(15)

    assert not pushing.is_alive()
    assert paths(sending) == {"/healthy/crm": 100}


def test_a_push_in_progress_sends_nothing_more_to_a_paused_target(sending: Sending) -> None:
    """It ends at once, and what it has not sent is on hold."""
    batch, pushing = push_at_two_a_second(sending)

    operate(sending.runtime, "pause target", "orders", "crm")
    pushing.join(15)
    is_over = not pushing.is_alive()
    pushing.join()
    sending.settle(batch)

    assert is_over
    on_hold = sum(row.count for row in sending.runtime.ledger.pending.find(state="on_hold"))
    assert paths(sending)["/healthy/crm"] + on_hold == 100
    assert on_hold > 0


def test_an_ordered_target_continues_in_order_after_a_pause(
    sending: Sending, clock: RunningClock, recorder: Recorder
) -> None:
    """What came before the pause, during it and after it arrives in the order it was published in."""
    publish(sending, *[keyed(n, "a") for n in range(4)])
    runtime = sending.begin(crm=ordered())
    assert sending.deliver_batch()
    operate(runtime, "pause target", "orders", "crm")
    publish(sending, *[keyed(n, "a") for n in range(4, 8)])
    assert sending.deliver_batch()
    assert recorder.got == {"a": [0, 1, 2, 3]}
    operate(runtime, "resume target", "orders", "crm")
    publish(sending, *[keyed(n, "a") for n in range(8, 12)])
    sending.deliver()
    clock.advance(5)
    sending.deliver()

    assert recorder.got == {"a": list(range(12))}
    assert audit(runtime).differences == ()


@pytest.mark.parametrize(
    ("action", "rule", "target", "value", "reported"),
    [
        ("pause rule", "order", "", "", "Did you mean orders?"),
        ("pause target", "orders", "cmr", "", "Did you mean crm?"),
        ("pause target", "orders", "", "", "name a target"),
        ("set priority", "orders", "", "urgent", "high, medium, low"),
        ("set rate", "orders", "crm", "fast", "is not a rate such as 200/s"),
        ("stop", "orders", "", "", "Actions: pause rule"),
    ],
)
def test_an_invalid_operation_is_refused_and_changes_nothing(
    sending: Sending, action: str, rule: str, target: str, value: str, reported: str
) -> None:
    """A user error names what would be right."""
    runtime = sending.begin(crm="/healthy/crm")

    with pytest.raises((UserError, NotFoundError), match="(?s)" + reported.replace("?", r"\?")):
        operate(runtime, action, rule, target, value)

    assert runtime.ledger.overrides.all() == []
