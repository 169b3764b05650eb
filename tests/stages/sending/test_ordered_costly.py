"""Ordered targets of costly rules: what is not routed yet comes before what is, within a queue."""

from __future__ import annotations

from stages.delivering import RunningClock, Sending, rules
from stages.ordering import Recorder, keyed, ordered, publish

from eventbridge.stages.audit import audit

#: A transform that is costly, and gives what the recorder reads.
_COSTLY = "transform: {form: JSONATA, value: $}, "


def test_what_is_not_routed_yet_blocks_what_lies_behind_it(
    sending: Sending, clock: RunningClock, recorder: Recorder
) -> None:
    """A budget that is over at once leaves references: later batches wait for them, and all comes in order."""
    publish(sending, *[keyed(n, "a") for n in range(6)])
    sending.write(rules({"crm": ordered().replace("{type: http, ", "{type: http, " + _COSTLY)}))
    work = sending.site.reopen(route_costly_budget_seconds=0.001)
    sending.deliver_batch()
    assert sum(each.count for each in work.ledger.waiting_references()) > 0
    sent = len(recorder.got["a"])
    assert sent < 6

    work = sending.site.reopen()
    publish(sending, *[keyed(n, "a") for n in range(6, 9)])
    for _ in range(4):
        clock.advance(3600)
        sending.deliver()

    assert recorder.got["a"] == list(range(9))
    assert audit(work).differences == ()
