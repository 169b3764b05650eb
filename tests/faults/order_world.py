"""A product with ordered targets in a folder, killed in forked processes at every call that can lose data.

`python -m faults.order_world FOLDER STAGE STEP` kills the stage at every STEP-th call, and prints for each of them a
JSON object with what each target had received after the recovery and what the audit found. All modules are imported
before the first fork, because a fork takes milliseconds and an import seconds. Targets write files in the order of
arrival.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas  # noqa: F401 - pyarrow imports it at its first table
import pyarrow.parquet  # noqa: F401

from eventbridge import fault_points
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.delivery.push import push
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.retry.plan import plan_retries
from eventbridge.pipeline.route.stage import route
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.repair.audit import audit
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime

RUNNER = "orders"
CUSTOMERS = "ab"
#: The number of orders of each customer in each of the two batches.
ORDERS = 2
TARGETS = ("late", "strict")
DIED = 77
LATER = timedelta(hours=2)

_READS = {"ledger.select", "store.get", "store.open", "store.exists", "store.list", "bus.read"}
_RETRY = "retry: {policy: custom, max_retries: 9, initial_delay: 1h, multiplier: 1, max_delay: 1h}"
_BY = "ordering_key: $.data.customer"


def write_rules(folder: Path, *, late: bool) -> None:
    """Write the rule file; if `late`, the target `late` refuses connections, otherwise it is a file."""
    refusing = f"{{type: http, url: 'http://127.0.0.1:1/', allow_http: true, {_BY}, {_RETRY}}}"
    taking = f"{{type: file, path: late.jsonl, {_BY}, {_RETRY}}}"
    (folder / "rules").mkdir(parents=True, exist_ok=True)
    (folder / "rules" / "orders.yaml").write_text(f"""
buses: {{orders: {{source: {{type: embedded, start_at: earliest, partitions: 2}}}}}}
rules:
  orders:
    bus: orders
    pattern: {{}}
    targets:
      late: {refusing if late else taking}
      strict: {{type: file, path: strict.jsonl, errors_tolerance: none, {_RETRY}}}
""")


def open_world(folder: Path, later: timedelta = timedelta(0)) -> Runtime:
    """Open the runtime of a world whose clock is ahead of the machine's by `later`."""
    mapping = {
        "EVENTBRIDGE_HOME": str(folder / "home"),
        "EVENTBRIDGE_FILE_TARGET_FOLDERS": str(folder),
        "EVENTBRIDGE_RULES_FOLDER": str(folder / "rules"),
        "EVENTBRIDGE_SEGMENT_RESPONSES": "2",
    }
    connections = connections_from_environment({})
    return open_runtime(Settings.from_mapping(mapping), connections, lambda: datetime.now(UTC) + later)


def publish(folder: Path, first: int) -> None:
    """Publish the orders of one batch, each customer's to one partition."""
    runtime = open_world(folder)
    source = runtime.open_source(runtime.rule_set().buses["orders"])
    for number in range(first, first + ORDERS):
        for customer in CUSTOMERS:
            event = {"specversion": "1.0", "id": f"{customer}{number}", "source": "/shop", "type": "order.placed"}
            body = json.dumps(event | {"data": {"customer": customer, "number": number}})
            source.publish([(body.encode(), customer)])  # type: ignore[attr-defined]
    source.close()
    runtime.close()


def run_route(runtime: Runtime) -> None:
    """Run the stages before push."""
    batch_id = listen(runtime, RUNNER)
    assert batch_id is not None, "orders were published"
    buffer(runtime, batch_id)
    route(runtime, batch_id, InProcessRouter(runtime.store))


def run_push(runtime: Runtime) -> None:
    """Push, settle, schedule retries and commit the batch in progress."""
    batch = runtime.ledger.batches.unfinished(RUNNER)
    assert batch is not None, "a batch was routed"
    _push_and_commit(runtime, batch.batch_id)


def run_retries(runtime: Runtime) -> None:
    """Run a whole retry batch."""
    plan = plan_retries(runtime, RUNNER)
    assert plan.batch_id is not None, "the first of each customer is due"
    _push_and_commit(runtime, plan.batch_id)


def run_recovery(runtime: Runtime) -> None:
    """Recover as the product does after a crash: continue until nothing is available and nothing is due."""
    deliver_until_idle(runtime, RUNNER, InProcessRouter(runtime.store), wait_seconds=0.0)


def _push_and_commit(runtime: Runtime, batch_id: str) -> None:
    for chunk in runtime.ledger.chunks.list_for_batch(batch_id):
        if chunk.handed_out:
            push(runtime, batch_id, chunk.chunk_id)
    write_dead_letters(runtime, batch_id)
    schedule_retries(runtime, batch_id)
    commit(runtime, batch_id)


def forked(body: Callable[[Runtime], None], folder: Path, *, later: timedelta, die_at: int = 0) -> int:
    """Run a body in a separate process and return its exit code, which is DIED if it reached its n-th call."""
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            if die_at:
                fault_points.install(_killer(die_at))
            body(open_world(folder, later))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _killer(die_at: int) -> Callable[[str], None]:
    count = 0
    lock = threading.Lock()

    def hook(point: str) -> None:
        nonlocal count
        if point in _READS:
            return
        with lock:
            count += 1
            if count == die_at:
                os._exit(DIED)

    return hook


def make_template(folder: Path, stage: str) -> timedelta:
    """Make the world in its state before a stage, and return how far its clock is ahead."""
    write_rules(folder, late=True)
    publish(folder, 0)
    assert forked(run_route, folder, later=timedelta(0)) == 0
    if stage == "push":
        return timedelta(0)
    assert forked(run_push, folder, later=timedelta(0)) == 0
    publish(folder, ORDERS)
    assert forked(run_route, folder, later=timedelta(0)) == 0
    assert forked(run_push, folder, later=timedelta(0)) == 0
    write_rules(folder, late=False)
    return LATER


def got(folder: Path, target: str) -> list[str]:
    """Return the ids of the orders that a target received, in the order of arrival."""
    path = folder / f"{target}.jsonl"
    return [json.loads(line)["id"] for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    """Kill a stage at its calls from the first to the last, each time in a new copy of its world that then recovers."""
    base, stage, step = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    later = make_template(base / "template", stage)
    body = {"push": run_push, "retries": run_retries}[stage]
    died, number = DIED, 1 - step
    while died == DIED:
        number += step
        folder = base / str(number)
        shutil.copytree(base / "template", folder)
        died = forked(body, folder, later=later, die_at=number)
        write_rules(folder, late=False)
        if stage == "push":
            publish(folder, ORDERS)
        codes = [died, *(forked(run_recovery, folder, later=later + n * LATER) for n in (1, 2, 3))]
        runtime = open_world(folder)
        reconciliation = audit(runtime)
        left = sum(row["pending"] for row in reconciliation.deliveries.values())
        runtime.close()
        report = {"codes": codes, "got": {target: got(folder, target) for target in TARGETS}, "left": left}
        sys.stdout.write(
            json.dumps(report | {"differences": [str(each) for each in reconciliation.differences]}) + "\n"
        )
        sys.stdout.flush()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
