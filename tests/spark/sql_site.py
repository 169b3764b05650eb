"""An installation on a real Spark with rules in SQL, and helpers of its tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.event.json_document import write_document
from eventbridge.pipeline.deliver import deliver_batch
from eventbridge.routing.job import Router
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.spark.route import ConnectRouter

#: Stops a delivery that runs for too long: never set.
STOP = Stop()

#: Events with a number each.
SUBJECT = [
    {"data": {"n": number, "text": f"{number}"}, "subject": f"s{number}", "fleet": number} for number in range(6)
]


class SqlSite:
    """One installation on a Spark Connect server, its rules, and what their targets have received."""

    def __init__(self, folder: Path, url: str, budget_seconds: float = 60, total_seconds: float = 600) -> None:
        self.folder = folder
        self.router: Router = ConnectRouter(url)
        (folder / "rules").mkdir()
        environ = {
            "EVENTBRIDGE_HOME": str(folder),
            "EVENTBRIDGE_FILE_TARGET_FOLDERS": str(folder),
            "EVENTBRIDGE_RULES_FOLDER": str(folder / "rules"),
            "EVENTBRIDGE_DISK_MIN_FREE_SIZE": "0",
            "EVENTBRIDGE_ROUTE_RULE_CPU_BUDGET": str(budget_seconds),
            "EVENTBRIDGE_ROUTE_TOTAL_CPU_BUDGET": str(total_seconds),
            "EVENTBRIDGE_ROUTE_DEFERRED_CPU_BUDGET": str(budget_seconds),
        }
        self.settings = Settings.from_mapping(environ)

    def write_rules(self, **rules: dict[str, Any]) -> None:
        """Write the rule file: by rule, its `where` and its targets' transforms."""
        made = {
            name: {
                "bus": "orders",
                "pattern": {"type": ["placed"]},
                **({"where": rule["where"]} if "where" in rule else {}),
                "targets": {
                    target: {
                        "type": "file",
                        "path": str(self.folder / f"{name}-{target}.jsonl"),
                        "transform": transform,
                    }
                    for target, transform in rule.get("targets", {"all": {"form": "ORIGINAL"}}).items()
                },
            }
            for name, rule in rules.items()
        }
        source = {"type": "embedded", "partitions": 1, "start_at": "earliest"}
        text = json.dumps({"buses": {"orders": {"source": source}}, "rules": made})
        (self.folder / "rules" / "rules.yaml").write_text(text)

    def deliver(self, *events: dict[str, Any]) -> Runtime:
        """Publish events, numbered from 0, and deliver a batch of them."""
        runtime = open_runtime(self.settings, connections_from_environment({}))
        source = runtime.open_source(runtime.rule_set().buses["orders"])
        base = {"specversion": "1.0", "source": "/shop", "type": "placed"}
        bodies = [write_document({**base, "id": str(number), **event}) for number, event in enumerate(events)]
        source.publish([(body.encode(), None) for body in bodies])  # type: ignore[attr-defined]
        source.close()
        deliver_batch(runtime, "orders", self.router, STOP)
        return runtime

    def received(self, name: str) -> list[Any]:
        """Return the lines of a target, read as JSON."""
        path = self.folder / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def ids(self, name: str) -> str:
        """Return the ids of the whole events that a target has received."""
        return "".join(event["id"] for event in self.received(name))


def waiting(runtime: Runtime) -> list[tuple[str, str, str, int]]:
    """Return rule, reason, state and number of events of the deferred matches that wait."""
    return [(each.rule, each.reason, each.state, each.count) for each in runtime.ledger.deferred_matches.waiting()]
