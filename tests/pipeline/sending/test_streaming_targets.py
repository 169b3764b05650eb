"""In a streaming batch's target queues, what one run of a target leaves is sent by the next run."""

from __future__ import annotations

from contextlib import closing

from pipeline.delivering import RunningClock, Sending
from pipeline.sending.test_open_batch import Q0, opened
from pipeline.streaming_tasks import until

from eventbridge.event.cloudevent import parse_event
from eventbridge.model.partition import FreshEvent
from eventbridge.streaming.routing import StreamingRouting
from eventbridge.streaming.target_queues import PoolTurns, TargetQueues, http_loop


def test_an_event_that_arrives_as_a_run_ends_is_sent_by_the_next_run(sending: Sending, clock: RunningClock) -> None:
    """It is not left to the close of the batch: the loop is notified at once, and the next run has it."""
    sending.rules(crm="/healthy/crm")
    runtime, batch = sending.runtime, opened(sending)
    rules = runtime.rules_of(batch)
    routing = StreamingRouting(runtime, batch, rules, set())

    def fresh(number: int) -> FreshEvent:
        event = parse_event(sending.order(number), max_bytes=1 << 20)
        return FreshEvent(Q0, number, 0, event.id, event.source, sending.order(number))

    turns = PoolTurns(rules, None, runtime.ledger.overrides.get_effective())
    with closing(http_loop()) as loop, closing(TargetQueues(runtime, batch, rules, loop, None, turns)) as queues:

        def responses() -> int:
            queues.poll()
            queues.engine.work_for(0.05)
            return queues.engine.unrecorded

        queues.offer(routing.pieces([fresh(1)]))
        until(lambda: responses() == 1)
        clock.advance(runtime.settings.push_timeout + 1)
        queues.offer(routing.pieces([fresh(2)]))

        assert queues.engine.work_for(10.0), "the run is over its time, and ends with the second event in its queue"
        until(lambda: responses() == 2)
    assert len(sending.requests()) == 2
