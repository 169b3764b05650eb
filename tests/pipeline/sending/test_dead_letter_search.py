"""A dead letter is searched for in the existing files, and not batch by batch."""

from __future__ import annotations

from pipeline.delivering import Sending
from stored import dead_letters

from eventbridge import fault_points
from eventbridge.dead_letters.reader import find_dead_letters
from eventbridge.dead_letters.selection import name_of
from eventbridge.runtime.runtime import Runtime


def questions(runtime: Runtime, name: str) -> int:
    """Return how often the ledger is asked to find a dead letter by its name."""
    found: list[str] = []
    fault_points.install(lambda point: found.append(point) if point == "ledger.select" else None)
    try:
        (dead_letter,) = find_dead_letters(runtime, name)
    finally:
        fault_points.install(None)
    assert dead_letter.name == name
    return len(found)


def test_the_ledger_is_asked_as_often_for_many_batches_as_for_one(sending: Sending) -> None:
    """A month has thousands of batches, and few of them have dead letters."""
    runtime = sending.begin(1, crm="/healthy/crm", erp="/status/400")
    sending.deliver_batch()
    (dead_letter,) = dead_letters(runtime)
    for_one = questions(runtime, name_of(dead_letter))
    sending.rules(crm="/healthy/crm")
    for _ in range(5):
        sending.publish(1)
        sending.deliver_batch()

    assert len(runtime.ledger.batches.find()) >= 6
    assert questions(runtime, name_of(dead_letter)) == for_one > 0
