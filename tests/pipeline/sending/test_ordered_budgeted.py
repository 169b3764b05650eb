"""For ordered targets of budgeted rules, unrouted events of a partition are delivered before later ones."""

from __future__ import annotations

from dataclasses import replace

from pipeline.delivering import RUNNER, RunningClock, Sending, rules
from pipeline.ordering import Recorder, keyed, ordered, publish

from eventbridge.delivery.ordered_backlog import open_deliveries
from eventbridge.model.partition import Position, Span
from eventbridge.model.pending import DeferredMatch
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.policy.ordering import DEFERRED_MATCH_FIRST, shard_of
from eventbridge.repair.audit import audit

#: A transform that is budgeted, and gives what the recorder reads.
_EXPENSIVE = "transform: {form: JSONATA, value: $}, "


def test_a_deferred_match_blocks_later_events_of_its_order(
    sending: Sending, clock: RunningClock, recorder: Recorder
) -> None:
    """A budget that is over at once leaves deferred matches: later batches come behind them, and all comes in order."""
    publish(sending, *[keyed(n, "a") for n in range(6)])
    sending.write(rules({"crm": ordered().replace("{type: http, ", "{type: http, " + _EXPENSIVE)}))
    runtime = sending.site.reopen(route_rule_cpu_budget=0.001)
    sending.deliver_batch()
    (waiting,) = runtime.ledger.deferred_matches.waiting()
    assert sum(last - first + 1 for _, first, last in waiting.order_spans) == waiting.count > 0
    sent = len(recorder.got["a"])
    assert sent < 6

    runtime = sending.site.reopen()
    publish(sending, *[keyed(n, "a") for n in range(6, 9)])
    for _ in range(4):
        clock.advance(3600)
        sending.deliver()

    assert recorder.got["a"] == list(range(9))
    assert audit(runtime).differences == ()


def test_a_deferred_match_is_read_by_where_its_first_event_lies(sending: Sending, recorder: Recorder) -> None:
    """Later deliveries of its partition wait, except for the batch that took it up; earlier ones are sent."""
    positions = [sending.site.publish(keyed(n, "a"), key="a")[0] for n in range(4)]
    runtime = sending.begin(crm=ordered())
    batch_id = listen(runtime, RUNNER)
    assert batch_id is not None
    buffer(runtime, batch_id)
    (file,) = [file.path for file in runtime.ledger.files.list_for_batch(batch_id, "buffer") if file.rows]
    now = runtime.ledger.now()
    deferred_match = DeferredMatch(batch_id, RUNNER, "orders", "budget", ((str(file), "1-2"),), 2, now, now)
    runtime.ledger.chunks.publish(batch_id, now, [], [deferred_match])
    batch = replace(runtime.ledger.batches.get(batch_id), batch_id="another")

    found = open_deliveries(runtime, batch, ("orders", "crm"), shard_of('"a"'), [], set())

    reasons = [found.reason_to_wait('"a"', Position(partition, offset)) for partition, offset in positions]
    assert reasons == ["", "", DEFERRED_MATCH_FIRST, DEFERRED_MATCH_FIRST]


def test_a_deferred_match_that_says_where_it_lies_costs_a_push_no_read(sending: Sending, recorder: Recorder) -> None:
    """Its files are not opened, however many deferred matches wait; a batch does not wait for what it took."""
    positions = [sending.site.publish(keyed(n, "a"), key="a")[0] for n in range(4)]
    runtime = sending.begin(crm=ordered())
    batch_id = listen(runtime, RUNNER)
    assert batch_id is not None
    buffer(runtime, batch_id)
    now = runtime.ledger.now()
    partition, offset = positions[1]
    spans = (Span(partition, offset, offset + 1),)
    deferred_match = DeferredMatch(
        batch_id, RUNNER, "orders", "budget", (("buffer/gone.parquet", "1-2"),), 2, now, now, order_spans=spans
    )
    runtime.ledger.chunks.publish(batch_id, now, [], [deferred_match])
    of = runtime.ledger.batches.get(batch_id)

    found = open_deliveries(runtime, replace(of, batch_id="another"), ("orders", "crm"), shard_of('"a"'), [], set())

    reasons = [found.reason_to_wait('"a"', Position(partition, offset)) for partition, offset in positions]
    assert reasons == ["", "", DEFERRED_MATCH_FIRST, DEFERRED_MATCH_FIRST]
    taking = replace(of, batch_id="taking", kind="retry", state="buffered")
    assert runtime.ledger.deferred_matches.take(taking, [1])
    found = open_deliveries(runtime, taking, ("orders", "crm"), shard_of('"a"'), [], set())
    assert {found.reason_to_wait('"a"', Position(partition, offset)) for partition, offset in positions} == {""}
