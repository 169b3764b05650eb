"""The rate of a redrive limits its requests per second, across batches, pushes and targets."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any

from pipeline.delivering import REFUSED, Sending, http, keeps, segment_rows

from eventbridge.control.consecutive_batches import deliver_redrive
from eventbridge.dead_letters.redrive_plan import begin_redrive, plan_redrive
from eventbridge.dead_letters.selection import Selection
from eventbridge.delivery.push import push
from eventbridge.pipeline.commit.stage import commit
from eventbridge.repair.audit import audit
from eventbridge.routing.task import InProcessRouter

NO_RETRY = "{policy: custom, max_retries: 0}"


def begin(sending: Sending, count: int, rate: float, **targets: str) -> str:
    """Let so many events die at each of the targets, then heal these, and begin a redrive; return its id.

    One push cannot say that a target which refuses everything is down: its dead letters come from several.
    """
    runtime = sending.begin(**{name: http(REFUSED, retry=NO_RETRY) for name in targets})
    while count:
        sending.publish(min(count, 9))  # ten would open its breaker
        count -= min(count, 9)
        sending.deliver()
        sending.site.clock.advance(60)
    sending.rules(**targets)
    return begin_redrive(runtime, Selection(), "run", rate=rate, retransform=False, again=False).redrive_id


def arrivals(sending: Sending) -> list[datetime]:
    """Return the arrival times of requests at the receiver."""
    return [datetime.fromisoformat(each["at"]) for each in sending.requests()]


def test_a_redrive_keeps_the_rate_of_the_target(sending: Sending) -> None:
    """With 54 dead letters at ten per second, the receiver never gets more than a second's rate and a lease."""
    redrive_id = begin(sending, 54, 10.0, crm="/healthy/crm")

    assert deliver_redrive(sending.runtime, redrive_id, InProcessRouter(sending.runtime.store)) == 1

    came = arrivals(sending)
    assert len(came) == 54
    assert keeps(came, 10.0)
    assert audit(sending.runtime).deliveries["orders/crm"]["delivered"] == 54
    assert audit(sending.runtime).differences == ()


def test_two_pushes_and_several_targets_share_the_rate(sending: Sending, site: Any) -> None:
    """Two concurrent chunks and two targets, one with its own rate, together keep both rates."""
    begin_with = {"crm": http("/healthy/crm", rate="4/s"), "note": "/healthy/note"}
    redrive_id = begin(sending, 36, 12.0, **begin_with)
    works = [site.reopen(chunk_max_deliveries=36) for _ in range(2)]
    plan = plan_redrive(works[0], redrive_id)
    assert plan.batch_id is not None
    assert len(works[0].ledger.chunks.list_for_batch(plan.batch_id)) == 2
    pushes = [threading.Thread(target=push, args=(runtime, plan.batch_id, n)) for n, runtime in enumerate(works)]
    for each in pushes:
        each.start()
    for each in pushes:
        each.join(40)

    rows = segment_rows(works[0], plan.batch_id)
    assert len(rows) == 72
    assert keeps([row["started_at"] for row in rows], 12.0)
    assert keeps([row["started_at"] for row in rows if row["target"] == "crm"], 4.0)
    sending.settle(works[0].ledger.batches.get(plan.batch_id))
    assert commit(works[0], plan.batch_id)
    assert audit(works[0]).differences == ()


def test_an_ordered_target_keeps_the_rate_too(sending: Sending) -> None:
    """An ordered target's dead letters are sent one by one, and its push waits for tokens as long as it may."""
    redrive_id = begin(sending, 9, 1.0, crm=http("/healthy/crm", ordering_key="partition"))

    assert deliver_redrive(sending.runtime, redrive_id, InProcessRouter(sending.runtime.store)) == 1

    assert len(arrivals(sending)) == 9
    assert keeps(arrivals(sending), 1.0)
    assert audit(sending.runtime).differences == ()
