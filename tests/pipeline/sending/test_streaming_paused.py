"""A pause or slowness of a target that another push finds also applies to the runs of a streaming task."""

from __future__ import annotations

from datetime import datetime, timedelta

from pipeline.delivering import Sending
from pipeline.streaming_tasks import a_streaming_task, ids, until

from eventbridge.policy.breaker import Ended, Tally
from eventbridge.repair.audit import audit

_PAUSE = timedelta(seconds=10)
#: A push reports to the ledger and reads it each second, later on a busy machine; requests in flight are not taken
#: back.
_KNOWN_AFTER = timedelta(seconds=5)


def test_a_pause_that_another_push_was_asked_for_holds_a_run_in_progress(sending: Sending) -> None:
    """Events keep the run going, and nothing is sent from the moment at which the ledger was asked until the end."""
    sending.rules(crm="/healthy/crm")
    ledger = sending.runtime.ledger
    with a_streaming_task(sending):
        sending.publish(1)
        until(lambda: sending.requests())
        asked_at = ledger.now()
        ledger.targets.record_attempts([Tally("orders", "crm", paused_until=asked_at + _PAUSE)])
        count = 1
        while ledger.now() < asked_at + _PAUSE - timedelta(seconds=3):  # the streaming task ends within the pause
            sending.publish(1)
            count += 1
            ended = ledger.now() + timedelta(seconds=0.1)
            until(lambda ended=ended: ledger.now() >= ended)
    times = [datetime.fromisoformat(each["at"]) for each in sending.requests()]
    sending.site.clock.advance(60)
    sending.deliver()

    assert [at for at in times if asked_at + _KNOWN_AFTER <= at] == []
    assert len(ids(sending)) == count
    assert set(ids(sending).values()) == {1}
    assert audit(sending.runtime).differences == ()


def test_a_target_that_another_push_found_slow_gets_nothing_more_from_a_run_in_progress(sending: Sending) -> None:
    """A run that begins would send it nothing either: its deliveries go through the slow lane."""
    sending.rules(crm="/healthy/crm")
    ledger = sending.runtime.ledger
    with a_streaming_task(sending):
        sending.publish(1)
        until(lambda: sending.requests())
        found_at = ledger.now()
        ledger.targets.record_attempts([Tally("orders", "crm", ended=Ended(1, allowed=10, delivered=1, spent=True))])
        count = 1
        while ledger.now() < found_at + _PAUSE - timedelta(seconds=3):
            sending.publish(1)
            count += 1
            ended = ledger.now() + timedelta(seconds=0.1)
            until(lambda ended=ended: ledger.now() >= ended)
        times = [datetime.fromisoformat(each["at"]) for each in sending.requests()]
    status = ledger.targets.statuses()["orders", "crm"]
    sending.site.clock.advance(60)
    sending.deliver()

    assert (status.state, status.slow) == ("degraded", True)
    assert [at for at in times if found_at + _KNOWN_AFTER <= at] == []
    assert len(ids(sending)) == count
    assert set(ids(sending).values()) == {1}
    assert audit(sending.runtime).differences == ()
