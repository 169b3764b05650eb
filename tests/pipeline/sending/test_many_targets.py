"""The files of a chunk with many targets are read once, and reading uses no target's budget."""

from __future__ import annotations

from collections import Counter

from pipeline.delivering import RunningClock, Sending, http, settled

from eventbridge import fault_points
from eventbridge.delivery.push import push
from eventbridge.pipeline.commit.stage import commit
from eventbridge.repair.audit import audit
from eventbridge.rules.rule_set import RuleLines
from eventbridge.store import rule_sets


def test_a_file_is_opened_once_however_many_targets_it_has_deliveries_for(sending: Sending) -> None:
    """Twenty targets, each with a piece of every file."""
    targets = {f"target-{number}": f"/healthy/{number}" for number in range(20)}
    batch = sending.routed(6, **targets)
    (chunk,) = sending.runtime.ledger.chunks.list_for_batch(batch.batch_id)
    assert len(chunk.pieces) >= 20
    opened: Counter[str] = Counter()
    fault_points.install(lambda point: opened.update([point]))

    report = push(sending.runtime, batch.batch_id, chunk.chunk_id)

    fault_points.install(None)
    assert report.delivered == 20 * 6
    assert opened["store.open"] == len({piece.file for piece in chunk.pieces})


def test_the_budget_begins_when_the_deliveries_have_been_read(sending: Sending, clock: RunningClock) -> None:
    """A store that takes longer than a budget to give them costs no delivery its turn, and no target its standing."""
    batch = sending.routed(6, settings={"push_timeout": 5}, crm="/healthy/crm", note="/healthy/note")
    runtime = sending.runtime
    fault_points.install(lambda point: clock.advance(6) if point == "store.open" else None)

    push(runtime, batch.batch_id, 0)

    fault_points.install(None)
    sending.settle(batch)
    assert {row.status for rows in settled(runtime, batch.batch_id).values() for row in rows} == {"delivered"}
    assert runtime.ledger.targets.statuses() == {}


def test_two_pieces_that_lie_in_one_another_are_distinguished(sending: Sending, clock: RunningClock) -> None:
    """A retry chunk names rows of two targets of one file by turns: each gets its own, with their payloads."""
    policy = "{policy: custom, max_retries: 5, initial_delay: 1h, multiplier: 1, max_delay: 1h}"
    refusing = http("/status/503", retry=policy)
    runtime = sending.begin(6, crm=refusing, note=refusing)
    sending.deliver_batch()
    sending.rules(crm="/healthy/crm", note="/healthy/note")
    clock.advance(2 * 3600)

    sending.deliver()

    got = [(request["path"], request["webhook_id"]) for request in sending.requests() if "/healthy/" in request["path"]]
    assert len(set(got)) == 12
    assert {name: numbers["delivered"] for name, numbers in audit(runtime).deliveries.items()} == {
        "orders/crm": 6,
        "orders/note": 6,
    }


def test_rules_of_what_was_delivered_are_not_read_to_settle_and_commit_it(sending: Sending) -> None:
    """To settle costs by what is left to do: reading 10,000 rules took more than half of its CPU time."""
    batch = sending.routed(6, crm="/healthy/crm", note="/healthy/note")
    for chunk in sending.runtime.ledger.chunks.list_for_batch(batch.batch_id):
        push(sending.runtime, batch.batch_id, chunk.chunk_id)
    rule_sets._read.clear()  # as a new process

    sending.settle(batch)
    assert commit(sending.runtime, batch.batch_id)

    rules = sending.runtime.rules_of(batch).rules
    assert isinstance(rules, RuleLines)
    assert rules._read == {}
