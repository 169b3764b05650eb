"""What the tests of push, settle, park and commit share: a clock that runs, rules with HTTP targets, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from eventbridge.ledger.records import Batch
from eventbridge.stages.buffer import buffer
from eventbridge.stages.listen import listen
from eventbridge.stages.route import route
from eventbridge.stages.route_in_process import InProcessRouter
from eventbridge.stages.settle import settlement_rows
from eventbridge.stages.workplace import Workplace

RUNNER = "orders"


@dataclass
class RunningClock:
    """The machine's clock, which a test may put forward."""

    ahead: timedelta = field(default_factory=timedelta)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def advance(self, seconds: float) -> None:
        """Move on."""
        self.ahead += timedelta(seconds=seconds)


def rules(**targets: str) -> str:
    """Return a rule file of one rule `orders` that matches every order, its targets given as flow YAML."""
    lines = [f"      {name}: {text}" for name, text in targets.items()]
    return "\n".join(
        [
            "buses:",
            "  orders:",
            "    source: {type: embedded, topics: [placed], queues: 2, start_at: earliest}",
            "rules:",
            "  orders:",
            "    bus: orders",
            "    pattern: {type: [order.placed]}",
            "    targets:",
            *lines,
            "",
        ]
    )


def http(url: str, policy: str = "{policy: own, attempts: 3, initial: 1h, multiplier: 1, maximum: 1h}") -> str:
    """Return a target of type http as flow YAML; by default it is tried again after an hour, three times."""
    return f'{{type: http, url: "{url}", allow_http: true, timeout: 1s, retry: {policy}}}'


def routed(work: Workplace) -> Batch:
    """Listen, buffer and route; return the batch, which is now to be pushed."""
    batch_id = listen(work, RUNNER)
    assert batch_id is not None, "events were published"
    buffer(work, batch_id)
    route(work, batch_id, InProcessRouter(work.store))
    return work.ledger.batch(batch_id)


def verdicts(work: Workplace, batch_id: str) -> dict[str, list[dict[str, Any]]]:
    """Return the settlement's rows by target."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in settlement_rows(work, batch_id):
        found.setdefault(row["target"], []).append(row)
    return found


def segment_rows(work: Workplace, batch_id: str) -> list[dict[str, Any]]:
    """Return every recorded outcome row of a batch."""
    from eventbridge.store.parquet import read_table

    files = work.ledger.files(batch_id, "outcome")
    return [row for file in files if file.path for row in read_table(work.store, file.path).to_pylist()]
