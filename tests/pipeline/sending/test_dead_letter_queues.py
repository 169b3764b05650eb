"""A dead letter queue gets a copy of each dead letter as a separate delivery, for which nothing waits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pipeline.delivering import REFUSED, Sending, http
from stored import dead_letters

from eventbridge.control.overrides import enable_target
from eventbridge.delivery.queue_copies import QUEUE_EXHAUSTED
from eventbridge.errors import ReconciliationError
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.repair.audit import audit

NO_RETRY = "{policy: custom, max_retries: 0}"
QUEUE = "crm/dead_letter_queue"


def dying(queue: str) -> str:
    """Return a target without retries, with this dead letter queue."""
    return http(REFUSED, retry=NO_RETRY, dead_letter_queue=queue)


def test_a_queue_gets_the_dead_letters_whole(sending: Sending, tmp_path: Path) -> None:
    """A file has a line for each: the dead letter as it is in the store, under no id of the delivery itself."""
    lines = tmp_path / "dead.jsonl"
    sending.begin(3, crm=dying(f"{{type: file, path: {lines}}}"), other="/healthy/other")

    sending.deliver()

    copies = [json.loads(line) for line in lines.read_text().splitlines()]
    entries = list(dead_letters(sending.runtime, whole=True))
    assert len(copies) == len(entries) == 3
    assert {each["event_id"] for each in copies} == {"1", "2", "3"}
    assert {each["event"] for each in copies} == {each["event"].decode() for each in entries}
    assert {(each["reason"], each["attempts"][0]["outcome"]) for each in copies} == {
        ("maximum_retry_attempts", "dead_lettered")
    }
    assert sending.runtime.ledger.pending.counts() == []
    found = audit(sending.runtime)
    assert found.differences == ()
    assert found.deliveries[f"orders/{QUEUE}"] == {"matched": 3, "delivered": 3, "dead_lettered": 0, "pending": 0}
    assert found.deliveries["orders/crm"] == {"matched": 3, "delivered": 0, "dead_lettered": 3, "pending": 0}


def test_an_http_queue_knows_copies_by_ids_of_their_own(sending: Sending) -> None:
    """The `webhook-id` of a copy is not that of the delivery that died, and the same at every attempt."""
    sending.begin(2, crm=dying(http("/healthy/dead")))

    sending.deliver()

    came = [each for each in sending.requests() if each["path"] == "/healthy/dead"]
    died = {record["delivery_id"].hex() for record in dead_letters(sending.runtime)}
    assert len({each["webhook_id"] for each in came}) == 2
    assert not died & {each["webhook_id"].replace("-", "") for each in came}


def test_the_batch_is_committed_before_the_queue_is_asked(sending: Sending) -> None:
    """A queue that would never respond delays nothing: its copies wait beside the sums of the reconciliation."""
    sending.begin(2, crm=dying(http(REFUSED)))

    batch_id = sending.deliver_batch()

    assert batch_id is not None
    assert sending.runtime.ledger.batches.get(batch_id).state == "committed"
    (row,) = sending.runtime.ledger.pending.find()
    assert (row.target, row.reason, row.count, row.state) == (QUEUE, "dead_letter_queue", 2, "scheduled")
    assert audit(sending.runtime).differences == ()


def test_a_queue_that_is_exhausted_is_held_and_can_be_enabled(sending: Sending, tmp_path: Path) -> None:
    """Its copies are no dead letters; once an operator has fixed and enabled it they are retried."""
    sending.begin(2, crm=dying(http(REFUSED, retry=NO_RETRY)))
    sending.deliver()
    sending.deliver()

    (row,) = sending.runtime.ledger.pending.find(state="on_hold")
    assert (row.target, row.hold_reason, row.count) == (QUEUE, QUEUE_EXHAUSTED, 2)
    assert len(list(dead_letters(sending.runtime))) == 2
    assert audit(sending.runtime).differences == ()
    sending.site.clock.advance(100_000)
    lines = tmp_path / "dead.jsonl"
    sending.rules(crm=dying(f"{{type: file, path: {lines}}}"))
    sending.deliver()
    assert not lines.exists()

    assert enable_target(sending.runtime, "orders", QUEUE) == 2
    sending.deliver()

    assert len(lines.read_text().splitlines()) == 2
    assert audit(sending.runtime).differences == ()


def test_a_queue_that_is_removed_holds_its_copies(sending: Sending) -> None:
    """They wait until the rule file names it again and an operator releases them; they are never dropped."""
    sending.begin(1, crm=dying(http(REFUSED)))
    sending.deliver()
    sending.rules(crm=http(REFUSED, retry=NO_RETRY))
    for _ in range(3):
        sending.site.clock.advance(4_000)
        sending.deliver()

    (row,) = sending.runtime.ledger.pending.find(state="on_hold")
    assert (row.target, row.hold_reason) == (QUEUE, QUEUE_EXHAUSTED)
    assert audit(sending.runtime).differences == ()


def test_a_copy_that_was_not_pending_stops_the_commit(sending: Sending) -> None:
    """The reconciliation proves that there is a copy for each dead letter of a target with a queue."""
    batch = sending.routed(1, crm=dying(http(REFUSED)))
    sending.push(batch)
    write_dead_letters(sending.runtime, batch.batch_id)

    with pytest.raises(ReconciliationError, match="dead letters = copies pending"):
        commit(sending.runtime, batch.batch_id)
    sending.settle(batch)
    assert commit(sending.runtime, batch.batch_id)
