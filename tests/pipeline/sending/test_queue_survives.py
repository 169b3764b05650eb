"""Whatever dies, a delivery of a queue is neither lost nor received again once it is acknowledged."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from pipeline.delivering import RUNNER, RunningClock, Sending, settled
from pipeline.dying import DIED, DONE, POINTS, push_that_dies

from eventbridge import fault_points
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.control.queues import acknowledge, receive
from eventbridge.delivery.push import push
from eventbridge.model.queue import ReceivedDelivery
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.deliver import deliver_retries
from eventbridge.repair.audit import audit
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop

QUEUE = "{type: queue, queue: orders, visibility_timeout: 1h}"
IN_ORDER = "{type: queue, queue: orders, ordering_key: partition}"
#: After this time a batch whose process died is settled by the next run.
STALE = 600.0


def received(runtime: Runtime) -> list[ReceivedDelivery]:
    return receive(runtime, runtime.rule_set(), "orders", 100)


def acknowledged(runtime: Runtime, deliveries: list[ReceivedDelivery]) -> None:
    found = acknowledge(runtime, runtime.rule_set(), "orders", [each.receipt for each in deliveries])
    assert found.done == len(deliveries)


def test_a_push_that_fills_a_queue_may_die_anywhere(sending: Sending, site: Any, tmp_path: Path) -> None:
    """Each delivery is in the queue once, and pending in the books, whatever the dead push had done."""
    site.environ["EVENTBRIDGE_BATCH_TIMEOUT"] = "3600"
    batch = sending.routed(5, pull=QUEUE)
    for number in count(1, 2):
        wreck = site.copy(tmp_path / f"wreck-{number}")
        code = push_that_dies(wreck.folder, wreck.environ, batch.batch_id, number)
        runtime = wreck.reopen()
        push(runtime, batch.batch_id, 0)
        Sending(wreck, sending.receiver, sending.order).settle(batch)

        assert {row.status for row in settled(runtime, batch.batch_id)["pull"]} == {"retry_scheduled"}
        got = received(runtime)
        assert len({each.delivery_id for each in got}) == len(got) == 5
        assert commit(runtime, batch.batch_id)
        assert audit(runtime).differences == ()
        wreck.close()
        if code == DONE:
            break
        assert code == DIED
    assert number > 3


def test_an_ordered_push_may_die_anywhere(sending: Sending, site: Any, tmp_path: Path, clock: RunningClock) -> None:
    """Afterwards the deliveries of both partitions are still received in their order, one at a time."""
    site.environ["EVENTBRIDGE_BATCH_TIMEOUT"] = "3600"
    batch = sending.routed(6, pull=IN_ORDER)
    for number in count(2, 2):
        wreck = site.copy(tmp_path / f"wreck-{number}")
        code = push_that_dies(wreck.folder, wreck.environ, batch.batch_id, number)
        runtime = wreck.reopen()
        clock.advance(60)  # the lease of the dead push has ended
        push(runtime, batch.batch_id, 0)
        Sending(wreck, sending.receiver, sending.order).settle(batch)
        found: list[list[int]] = []
        while got := received(runtime):
            found.append(sorted(int(json.loads(each.payload)["id"]) for each in got))
            acknowledged(runtime, got)
        assert found == [[1, 2], [3, 4], [5, 6]]
        wreck.close()
        if code == DONE:
            break
        assert code == DIED


_processes = multiprocessing.get_context("forkserver")


def _retry(folder: Path, environ: Mapping[str, str], at: int) -> None:
    """Move a retry batch through its stages, ending the process at the `at`-th point."""
    mapping = {**environ, "EVENTBRIDGE_HOME": str(folder), "EVENTBRIDGE_RULES_FOLDER": str(folder / "rules")}
    connections = connections_from_environment(mapping)
    runtime = open_runtime(Settings.from_mapping(mapping), connections, lambda: datetime.now(UTC))
    reached = 0

    def hook(point: str) -> None:
        nonlocal reached
        reached += point in POINTS
        if reached >= at:
            os._exit(DIED)

    fault_points.install(hook)
    deliver_retries(runtime, RUNNER, Stop())
    runtime.close()


def test_a_retry_batch_that_takes_results_may_die_anywhere(
    sending: Sending, site: Any, tmp_path: Path, clock: RunningClock
) -> None:
    """What was acknowledged is delivered in the end, and no consumer receives it again."""
    sending.begin(3, pull=QUEUE)
    sending.deliver()
    acknowledged(sending.runtime, received(sending.runtime))
    for number in count(1, 4):
        wreck = site.copy(tmp_path / f"wreck-{number}")
        process = _processes.Process(target=_retry, args=(wreck.folder, dict(wreck.environ), number), daemon=True)
        process.start()
        process.join(120)
        code = process.exitcode
        runtime = wreck.reopen()
        assert received(runtime) == []
        clock.ahead = timedelta(seconds=STALE)
        other = Sending(wreck, sending.receiver, sending.order)
        other.deliver()

        assert received(runtime) == []
        assert sum(row.count for row in runtime.ledger.pending.counts(runner=RUNNER)) == 0
        newest = {
            row.delivery_id: row.status
            for batch in sorted(runtime.ledger.batches.find(limit=100), key=lambda each: each.planned_at)
            for row in settled(runtime, batch.batch_id).get("pull", ())
        }
        assert list(newest.values()) == ["delivered"] * 3
        assert audit(runtime).differences == ()
        clock.ahead = timedelta()
        wreck.close()
        if code == DONE:
            break
        assert code == DIED
    assert number > 6
