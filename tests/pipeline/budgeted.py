"""Helpers for the tests of budgeted rules: a rule whose program is in a file, small budgets, and what it received."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eventbridge.errors import SparkError
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.routing.job import RouteJob, RuleShare, SliceResult, Task
from eventbridge.routing.task import InProcessRouter
from eventbridge.rules import RuleSet, Transform
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.testing.poison import POISONED, route_with_poison

Order = Callable[..., bytes]

RULES = """
buses:
  orders:
    source: {type: embedded, topics: [placed], partitions: 1, start_at: earliest}
rules:
  cheap:
    bus: orders
    pattern: {}
    targets:
      lines: {type: file, path: CHEAP}
  expensive:
    bus: orders
    pattern: {data: {amount: [{numeric: [">", 5]}]}}
    ENABLED
    targets:
      lines: {type: file, path: EXPENSIVE}
      more: {type: file, path: MORE, retry: {maximum_event_age: AGE}}
"""

#: Small budgets, so that a looping program delays a test only briefly.
BUDGETS = {"route_rule_cpu_budget": 0.2, "route_deferred_cpu_budget": 0.4}


@dataclass(frozen=True)
class BudgetedRuntime(Runtime):
    """A runtime whose rule `expensive` has JSONATA transforms with a program from a file."""

    def rule_files(self) -> RuleSet:
        """Return the current rules."""
        rules = super().rule_files()
        if "expensive" not in rules.rules:
            return rules
        program = (self.settings.home / "program").read_text()
        rule = rules.rules["expensive"]
        transform = Transform(form="JSONATA", value=program)
        targets = {name: target.model_copy(update={"transform": transform}) for name, target in rule.targets.items()}
        changed = type(rule)(**{**dict(rule), "targets": targets, "version": ""})
        return RuleSet(buses=rules.buses, rules=rules.rules | {"expensive": changed})


class BudgetedSite:
    """One installation with a cheap and a budgeted rule, and the lines that their targets received."""

    def __init__(self, site: Any) -> None:
        self.site = site
        self.stop = Stop()
        self.write_rules()
        self.program("$.id")

    def write_rules(self, enabled: bool = True, age: str = "24h", text: str = RULES) -> None:
        """Write the rule file."""
        folder = self.site.folder
        text = text.replace("ENABLED", f"enabled: {str(enabled).lower()}").replace("AGE", age)
        for name in ("CHEAP", "EXPENSIVE", "MORE"):
            text = text.replace(name, str(folder / f"{name}.jsonl"))
        self.site.write_rules(text)

    def program(self, text: str) -> None:
        """Change the program of the budgeted rule's transforms."""
        (self.site.folder / "program").write_text(text)

    def runtime(self) -> BudgetedRuntime:
        """Open the installation."""
        return BudgetedRuntime(**vars(self.site.reopen(**BUDGETS)))

    def publish(self, order: Order, *amounts: float, poison: Sequence[int] = ()) -> None:
        """Publish an order for each amount, numbered from 0; those with an index in `poison` are poisoned."""
        subjects = [POISONED if number in poison else "good" for number in range(len(amounts))]
        self.site.publish(
            *[order(number, amount, subject=subjects[number]) for number, amount in enumerate(amounts)], key="k"
        )

    def lines(self, name: str) -> list[str]:
        """Return the ids that a target has received."""
        path: Path = self.site.folder / f"{name}.jsonl"
        return [json.loads(line)["id"] for line in path.read_text().splitlines()] if path.exists() else []


def router(runtime: Runtime) -> InProcessRouter:
    """Return a router that runs the programs of budgeted rules."""
    return InProcessRouter(runtime.store, route_with_poison)


def landed(runtime: Runtime) -> str:
    """Plan and land a batch."""
    batch_id = listen(runtime, "orders") or ""
    buffer(runtime, batch_id)
    return batch_id


def settled(runtime: Runtime, batch_id: str) -> None:
    """Settle and commit a batch that was not pushed."""
    write_dead_letters(runtime, batch_id)
    schedule_retries(runtime, batch_id)
    assert commit(runtime, batch_id)


def waiting(runtime: Runtime) -> list[tuple[str, str, int]]:
    """Return the reason, the state and the number of events of the pending deferred matches."""
    return [(each.reason, each.state, each.count) for each in runtime.ledger.deferred_matches.waiting()]


class Crashing(InProcessRouter):
    """A router whose worker dies while it routes the rule `expensive`, until it is fixed."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime.store, route_with_poison)
        self.fixed = False
        self.shares = 0

    def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        if any(isinstance(task, RuleShare) for task in tasks) and not self.fixed:
            self.shares += 1
            raise SparkError("the worker exited unexpectedly")
        return super().route_slices(job, tasks)
