"""Listen takes as many events as can be handed out according to the fan-out of the last batches."""

from __future__ import annotations

from pipeline.delivering import RUNNER, Sending, rules

from eventbridge.pipeline.ingest.listen import listen
from eventbridge.policy.chunking import PoolSlots
from eventbridge.repair.audit import audit

HEALTHY = "/healthy/crm"
SETTINGS = {"chunk_max_deliveries": 5}


def taken(sending: Sending, pools: dict[str, PoolSlots] | None = None) -> int:
    """Publish forty events and return how many of them the next batch takes."""
    sending.publish(40)
    batch_id = listen(sending.runtime, RUNNER, pools)
    assert batch_id is not None
    return sum(each.end - each.start for each in sending.runtime.ledger.batches.ranges(batch_id))


def test_a_batch_takes_what_its_pool_has_room_for(sending: Sending) -> None:
    """Forty events came to eight chunks: with two free slots, room for four, twenty are taken."""
    sending.begin(40, settings=SETTINGS, crm=HEALTHY)
    sending.deliver_batch()

    assert taken(sending, {"eventbridge.medium": PoolSlots(16, 2)}) == 20


def test_nothing_binds_a_batch_whose_deliveries_fit(sending: Sending) -> None:
    """Neither a pool with room, nor one that is not known, nor one that is closed: what it gets is on hold."""
    sending.begin(40, settings=SETTINGS, crm=HEALTHY)
    sending.deliver_batch()
    pools = {"eventbridge.medium": PoolSlots(0, 0), "eventbridge.low": PoolSlots(1, 1)}

    assert taken(sending, pools) == 40


def test_a_full_pool_leaves_a_batch_one_slot(sending: Sending) -> None:
    """Slots that are all taken at the moment, by another runner say, do not stop this one."""
    sending.begin(40, settings=SETTINGS, crm=HEALTHY)
    sending.deliver_batch()

    assert taken(sending, {"eventbridge.medium": PoolSlots(16, 0)}) == 10


def test_a_pool_of_its_own_holds_up_no_other_rule(sending: Sending) -> None:
    """What a narrow rule has no room for goes to the slow lane; the others of the runner have their events."""
    sending.begin(settings=SETTINGS, crm=HEALTHY)
    sending.write(rules({"crm": HEALTHY}, concurrency="1"))
    sending.publish(40)
    sending.deliver_batch()

    assert taken(sending, {"eventbridge.rule.orders": PoolSlots(1, 1)}) == 40


def test_a_degraded_target_does_not_count(sending: Sending) -> None:
    """Its deliveries are not handed out anyway: it must not cost the others their events."""
    sending.begin(40, settings=SETTINGS, crm=HEALTHY, erp=HEALTHY)
    sending.runtime.ledger.targets.set_status("orders", "erp", "degraded", "for the test")
    sending.deliver_batch()

    assert taken(sending, {"eventbridge.medium": PoolSlots(16, 2)}) == 20


def test_events_that_exceed_a_batch_are_in_the_next_one(sending: Sending) -> None:
    """The first batch hands out two of eight chunks; the second takes a quarter of the events and hands out all."""
    runtime = sending.begin(40, settings=SETTINGS | {"batch_max_chunks": 2}, crm=HEALTHY)
    sending.deliver_batch()
    sending.publish(40)
    sending.deliver_batch()

    handed_out = [
        [chunk.handed_out for chunk in runtime.ledger.chunks.list_for_batch(batch.batch_id)]
        for batch in reversed(runtime.ledger.batches.find())
        if batch.kind == "normal"
    ]
    assert [chunks.count(False) for chunks in handed_out] == [6, 0]
    assert handed_out[1] == [True, True]


def test_a_batch_comes_to_no_more_deliveries_than_can_be_settled(sending: Sending) -> None:
    """EVENTBRIDGE_BATCH_MAX_DELIVERIES counts all targets together."""
    sending.begin(40, settings={"batch_max_deliveries": 30}, crm=HEALTHY, erp=HEALTHY)
    sending.deliver_batch()

    assert taken(sending) == 15


def test_few_events_say_little_of_a_pool(sending: Sending) -> None:
    """One event of which a chunk is made is no sign that forty have no room."""
    sending.begin(1, crm=HEALTHY)
    sending.deliver_batch()

    assert taken(sending, {"eventbridge.medium": PoolSlots(1, 1)}) == 40
    sending.deliver()
    assert audit(sending.runtime).differences == ()
