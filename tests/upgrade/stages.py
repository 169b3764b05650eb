"""Runs stages of one installation as it is told on standard input, one JSON array a line: `["push", "BATCH", 0]`.

Runs by the code that PYTHONPATH names first, this version's or the one before: it uses what both have. Responses each
line by one: what the stage returned, as far as the next ones need it, or `{"error": ...}`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.ledger.revision import HEAD
from eventbridge.routing.in_process import InProcessRouter
from eventbridge.stages.commit.stage import commit
from eventbridge.stages.ingest.buffer import buffer
from eventbridge.stages.ingest.listen import listen
from eventbridge.stages.operate.audit import audit
from eventbridge.stages.push.stage import push
from eventbridge.stages.retry.plan import plan_retries
from eventbridge.stages.route.stage import route
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.stages.settle.dead_letters import write_dead_letters
from eventbridge.stages.settle.pending import schedule_retries

RUNNER = "orders"


def publish(runtime: Runtime, *bodies: str) -> int:
    """Publish events to the bus `orders`."""
    publisher = runtime.open_publisher(runtime.rule_set().buses["orders"])
    try:
        return len(publisher.publish([(body.encode(), None) for body in bodies]))
    finally:
        publisher.close()


def planned(runtime: Runtime) -> list[Any]:
    """Plan a retry batch; return its id and chunks."""
    plan = plan_retries(runtime, RUNNER)
    return [plan.batch_id, plan.chunk_ids]


STAGES: dict[str, Callable[..., Any]] = {
    "revision": lambda runtime: HEAD,
    "publish": publish,
    "listen": lambda runtime: listen(runtime, RUNNER),
    "buffer": lambda runtime, batch: buffer(runtime, batch) and None,
    "route": lambda runtime, batch: route(runtime, batch, InProcessRouter(runtime.store)),
    "push": lambda runtime, batch, chunk: push(runtime, batch, chunk) and None,
    "write_dead_letters": lambda runtime, batch: write_dead_letters(runtime, batch) and None,
    "schedule_retries": lambda runtime, batch: schedule_retries(runtime, batch) and None,
    "commit": lambda runtime, batch: bool(commit(runtime, batch)),
    "plan_retries": planned,
    "differences": lambda runtime: list(audit(runtime).differences),
    "deliveries": lambda runtime: audit(runtime).deliveries,
}


def main() -> None:
    """Serve until standard input ends."""
    runtime = Runtime.open(Settings.from_mapping(os.environ), connections_from_environment(os.environ))
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            found = {"found": STAGES[name](runtime, *arguments)}
        except Exception as error:
            found = {"error": f"{name}: {type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
