"""Many targets with deliveries due, one of them with a backlog: each has its turn before the backlog has its second."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from pipeline.delivering import RUNNER, Sending, http, routed
from pipeline.ordering import Recorder, keyed

from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.retry.plan import plan_retries
from eventbridge.repair.audit import audit

_TARGET = "{type: http, url: https://shop.example/hook}"
#: Fewer than half of the targets; 64 by default.
_TARGETS_A_RUN = 32
_SMALL = 65


def small() -> bytes:
    """Return the one event that the small targets get."""
    event = {"specversion": "1.0", "id": "small", "source": "/shop", "type": "order.small", "data": {"number": 0}}
    return json.dumps(event).encode()


def test_a_backlog_has_its_second_turn_after_the_first_turn_of_all_others(sending: Sending, recorder: Recorder) -> None:
    """It has waited longest: in each retry run it would get a chunk, while others wait for theirs."""
    targets = "".join(f"      t{number:03}: {_TARGET}\n" for number in range(_SMALL))
    sending.write(f"""
buses:
  orders: {{source: {{type: embedded, topics: [placed], partitions: 1, start_at: earliest}}}}
rules:
  backlog: {{bus: orders, pattern: {{type: [order.placed]}}, targets: {{crm: {_TARGET}}}}}
  small:
    bus: orders
    pattern: {{type: [order.small]}}
    targets:
{targets}""")
    sending.publish(*[keyed(number, "a") for number in range(20)], small())
    runtime = sending.site.reopen(chunk_max_deliveries=4, batch_max_chunks=_TARGETS_A_RUN)
    batch = routed(runtime)
    sending.settle(batch)  # before any push: all of it is pending, and due
    assert commit(runtime, batch.batch_id)

    plans: list[set[str]] = []
    while (plan := plan_retries(runtime, RUNNER)).batch_id is not None:
        chunks = runtime.ledger.chunks.list_for_batch(plan.batch_id)
        plans.append({f"{piece.rule}/{piece.target}" for chunk in chunks for piece in chunk.pieces})
        retry = runtime.ledger.batches.get(plan.batch_id)
        sending.push(retry)
        sending.settle(retry)
        assert commit(runtime, retry.batch_id)

    first = {name: next(n for n, plan in enumerate(plans) if name in plan) for plan in plans for name in plan}
    turns = [number for number, plan in enumerate(plans) if "backlog/crm" in plan]
    assert len(first) == _SMALL + 1
    assert len(turns) >= 2
    assert turns[0] == 0
    assert turns[1] >= max(first.values()) > 1
    assert audit(runtime).differences == ()
    assert sum(len(each) for each in recorder.got.values()) == 20 + _SMALL


def test_a_backlog_drains_at_the_rate_of_its_target(sending: Sending) -> None:
    """Run after run takes what fits a push, and over all of them the target gets no more a second than it may."""
    crm = http("/healthy/crm", rate="20/s")
    batch = sending.routed(60, settings={"push_timeout": 1}, crm=crm)
    began = datetime.now(UTC)
    sending.settle(batch)
    assert commit(sending.runtime, batch.batch_id)
    runs = 0
    while sending.retry() is not None:
        runs += 1

    times = sorted(datetime.fromisoformat(request["at"]) for request in sending.requests())
    assert len(times) == 60
    assert runs > 1
    assert (times[-1] - began).total_seconds() > 1.9, "at least 1.95 s by its tokens, from before the first one on"
    assert audit(sending.runtime).differences == ()
