"""All pushes of a target together keep its `rate`; further deliveries wait in the slow lane without an attempt."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any

import pytest
from pipeline.delivering import REFUSED, RunningClock, Sending, http, keeps, routed, segment_rows, settled

from eventbridge.delivery.push import push
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.retry.plan import plan_retries
from eventbridge.repair.audit import audit


def test_two_pushes_together_keep_the_rate(sending: Sending, site: Any) -> None:
    """Each with a ledger connection of its own, at the same time: together they send what one may."""
    sending.rules(crm=http("/healthy/crm", rate="20/s"))
    sending.publish(300)
    settings = {"push_timeout": 3, "chunk_max_deliveries": 150}
    works = [site.reopen(**settings) for _ in range(2)]
    batch = routed(works[0])
    assert len(works[0].ledger.chunks.list_for_batch(batch.batch_id)) == 2
    pushes = [threading.Thread(target=push, args=(runtime, batch.batch_id, n)) for n, runtime in enumerate(works)]

    for each in pushes:
        each.start()
    for each in pushes:
        each.join(20)

    rows = segment_rows(works[0], batch.batch_id)
    assert keeps([row["started_at"] for row in rows], 20.0)
    assert 40 <= len(rows) <= 20 * 4 + 1
    assert len({row["delivery_id"] for row in rows}) == len(rows)
    assert {chunk.succeeded > 0 for chunk in works[0].ledger.chunks.list_for_batch(batch.batch_id)} == {True}


def test_deliveries_over_the_rate_go_to_the_slow_lane_untried(sending: Sending) -> None:
    """It has no attempt, its target is not degraded for it, and it comes at the rate until all is delivered."""
    crm = http("/healthy/crm", rate="10/s")
    batch = sending.routed(40, settings={"push_timeout": 1}, crm=crm, note="/healthy/note")
    runtime = sending.runtime

    sending.push(batch)
    sending.settle(batch)

    rows = settled(runtime, batch.batch_id)["crm"]
    waiting = [row for row in rows if row.status == "unknown"]
    assert len(rows) - len(waiting) <= 21
    assert {(row.attempts, row.lane) for row in waiting} == {(0, "slow")}
    assert runtime.ledger.targets.statuses() == {}
    assert sum(request["path"] == "/healthy/note" for request in sending.requests()) == 40
    assert commit(runtime, batch.batch_id)
    sending.deliver()
    assert audit(runtime).deliveries["orders/crm"] == {"matched": 40, "delivered": 40, "dead_lettered": 0, "pending": 0}
    assert audit(runtime).differences == ()


@pytest.mark.parametrize("more", [{}, {"ordering_key": "$.data.id"}], ids=["in any order", "ordered"])
def test_a_target_alone_in_its_batch_is_sent_at_its_rate(sending: Sending, more: dict[str, object]) -> None:
    """It is alone in its batch, with several shards if it is ordered: its push continues, and is not a timeout."""
    crm = http("/healthy/alone", rate="10/s", **more)
    batch = sending.routed(100, settings={"push_timeout": 3}, crm=crm)
    runtime = sending.runtime

    sending.push(batch)

    assert 25 <= len(segment_rows(runtime, batch.batch_id)) <= 10 * 4 + 1
    assert runtime.ledger.chunks.get(batch.batch_id, 0).state == "completed"


def test_a_push_does_not_keep_its_batch_waiting_for_a_token(sending: Sending) -> None:
    """Ten a minute: one goes out, and the next events of its neighbours do not wait for the others."""
    batch = sending.routed(5, crm=http("/healthy/crm", rate="10/m"))

    sending.push(batch)

    rows = segment_rows(sending.runtime, batch.batch_id)
    assert len(rows) == 1
    chunk = sending.runtime.ledger.chunks.get(batch.batch_id, 0)
    assert chunk.started_at is not None
    assert chunk.ended_at is not None
    assert (chunk.ended_at - chunk.started_at).total_seconds() < 6


def test_a_target_that_heals_is_not_flooded(sending: Sending, clock: RunningClock) -> None:
    """After its probes it gets few deliveries a second at first, although hundreds wait."""
    runtime = sending.begin(400, settings={"push_timeout": 3}, crm=http(REFUSED, max_in_flight=1))
    sending.deliver()
    sending.rules(crm="/healthy/crm")
    clock.advance(31)

    sending.retry()
    sending.retry()

    status = runtime.ledger.targets.statuses()["orders", "crm"]
    sent = [datetime.fromisoformat(request["at"]) for request in sending.requests()]
    within = [at for at in sent if (at - min(sent)).total_seconds() < 2]
    assert status.state == "ok", status
    assert status.until is not None
    assert 5 <= len(within) <= 60, "5 probes, and then 5 a second, doubling every 2.5 s"


@pytest.mark.parametrize("more", [{}, {"ordering_key": "$.data.id"}], ids=["in any order", "ordered"])
def test_in_the_slow_lane_a_push_waits_for_tokens_as_long_as_its_budget_lasts(
    sending: Sending, more: dict[str, object]
) -> None:
    """Twenty a minute, in any order or by key: one retry batch delivers what the first push left."""
    batch = sending.routed(3, settings={"push_timeout": 30}, crm=http("/healthy/slowly", rate="20/m", **more))
    runtime = sending.runtime
    sending.push(batch)
    sending.settle(batch)
    assert commit(runtime, batch.batch_id)
    before = len(sending.requests())
    retry = plan_retries(runtime).batch_id
    assert retry is not None

    report = push(runtime, retry, 0)

    assert before < 3
    assert report.delivered == 3 - before
