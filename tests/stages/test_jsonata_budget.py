"""JSONata itself under a rule's budget: its evaluations count, wherever they run."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from eventbridge.stages.audit import audit
from eventbridge.stages.deliver import deliver_batch, deliver_references
from eventbridge.stages.records import dead_letters
from eventbridge.stages.route_in_process import InProcessRouter

RULES = """
buses:
  orders: {source: {type: embedded, topics: [placed], queues: 1, start_at: earliest}}
rules:
  costly:
    bus: orders
    pattern: {}
    targets:
      lines:
        type: file
        path: COSTLY
        transform:
          form: JSONATA
          value: '($f := function($x) { $f($x + 1) }; data.amount > 50 ? $f(1) : {"order": data.id})'
"""


def test_jsonata_that_loops_fails_for_its_event_and_the_rest_waits(site: Any, order: Callable[..., bytes]) -> None:
    """The evaluation is ended and its event a dead letter; with the budget gone the others are routed later."""
    site.write_rules(RULES.replace("COSTLY", str(site.folder / "costly.jsonl")))
    site.publish(order(1), order(2, 100), order(3), order(4), key="one queue")
    work = site.reopen(route_costly_budget_seconds=0.5)
    router = InProcessRouter(work.store)

    def delivered() -> list[str]:
        return [json.loads(line)["order"] for line in (site.folder / "costly.jsonl").read_text().splitlines()]

    deliver_batch(work, "orders", router, threading.Event())
    assert delivered() == ["1"]
    assert [(row["event_id"], row["reason"]) for row in dead_letters(work)] == [("2", "TransformFailed")]
    assert [(each.reason, each.count) for each in work.ledger.waiting_references()] == [("Budget", 2)]
    deliver_references(work, "orders", router, threading.Event())

    assert delivered() == ["1", "3", "4"]
    assert audit(work).differences == ()
