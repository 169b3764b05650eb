"""JSONata evaluations count towards a rule's budget, wherever they run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from stored import dead_letters

from eventbridge.pipeline.deliver import deliver_batch, deliver_deferred_matches
from eventbridge.repair.audit import audit
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.stop import Stop

RULES = """
buses:
  orders: {source: {type: embedded, topics: [placed], partitions: 1, start_at: earliest}}
rules:
  cheap:
    bus: orders
    pattern: {}
    targets:
      lines: {type: file, path: FOLDER/cheap.jsonl, transform: {form: JSONPATH, value: $.data}}
  other:
    bus: orders
    pattern: {}
    targets:
      lines: {type: file, path: FOLDER/other.jsonl, transform: {form: JSONATA, value: '{"order": data.id & ""}'}}
  expensive:
    bus: orders
    pattern: {}
    targets:
      lines:
        type: file
        path: FOLDER/expensive.jsonl
        transform:
          form: JSONATA
          value: '($f := function($x) { $f($x + 1) }; data.amount > 50 ? $f(1) : {"order": data.id})'
"""


def test_jsonata_that_loops_fails_for_its_events_and_delays_no_other_rule(
    site: Any, order: Callable[..., bytes]
) -> None:
    """In the same batch a cheap rule, and another with JSONATA, deliver every event; its own rest is routed later.

    Of five events that loop for a second each some fit the budget and are dead letters, the others are in the end.
    """
    site.write_rules(RULES.replace("FOLDER", str(site.folder)))
    amounts = [1, 100, 100, 100, 100, 100, 1]
    site.publish(*[order(number, amount) for number, amount in enumerate(amounts)], key="one partition")
    runtime = site.reopen(route_rule_cpu_budget=2)
    router = InProcessRouter(runtime.store)

    def delivered(rule: str, member: str = "order") -> list[str]:
        return [json.loads(line)[member] for line in (site.folder / f"{rule}.jsonl").read_text().splitlines()]

    deliver_batch(runtime, "orders", router, Stop())
    assert delivered("cheap", "id") == delivered("other") == list("0123456")
    assert delivered("expensive") == ["0"]
    (left,) = runtime.ledger.deferred_matches.waiting()
    failed = [(row["rule"], row["event_id"], row["reason"]) for row in dead_letters(runtime)]
    assert (left.rule, left.reason, left.count) == ("expensive", "budget", 6 - len(failed))
    assert failed == [("expensive", str(number + 1), "transform_failed") for number in range(len(failed))] != []
    deliver_deferred_matches(runtime, "orders", router, Stop())

    assert delivered("expensive") == ["0", "6"]
    assert sorted(row["event_id"] for row in dead_letters(runtime)) == list("12345")
    assert delivered("cheap", "id") == delivered("other") == list("0123456")
    assert audit(runtime).differences == ()
