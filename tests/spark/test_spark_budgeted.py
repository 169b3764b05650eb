"""Budgeted rules on a real Spark: a looping program is interrupted; one that resists or dies holds its rule."""

from __future__ import annotations

import json
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path

import pytest
from stored import dead_letters

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.pipeline.deliver import deliver_batch, deliver_deferred_matches
from eventbridge.repair.audit import audit
from eventbridge.rules import RuleSet, Transform
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.spark.route import ConnectRouter
from eventbridge.spark.server import SparkConnectServer
from eventbridge.testing.poison import POISONED, route_with_poison

RULES = """
buses:
  orders: {source: {type: embedded, partitions: 1, start_at: earliest}}
rules:
  cheap: {bus: orders, pattern: {}, targets: {lines: {type: file, path: FOLDER/cheap.jsonl}}}
  expensive: {bus: orders, pattern: {}, targets: {lines: {type: file, path: FOLDER/expensive.jsonl}}}
  other: {bus: orders, pattern: {}, targets: {lines: {type: file, path: FOLDER/other.jsonl}}}
"""


@dataclass(frozen=True)
class ExpensiveRuntime(Runtime):
    """A runtime in which `expensive` runs the program of a file, and `other` one that does no harm."""

    def rule_files(self) -> RuleSet:
        """Return the current rules."""
        rules = super().rule_files()
        programs = {"expensive": (self.settings.home / "program").read_text(), "other": "$.id"}
        changed = {}
        for name, program in programs.items():
            rule = rules.rules[name]
            transform = Transform(form="JSONATA", value=program)
            targets = {key: each.model_copy(update={"transform": transform}) for key, each in rule.targets.items()}
            changed[name] = type(rule)(**{**dict(rule), "targets": targets, "version": ""})
        return RuleSet(buses=rules.buses, rules=rules.rules | changed)


@pytest.fixture
def deliver(tmp_path: Path) -> Callable[..., ExpensiveRuntime]:
    """Publish eight events, some poisoned, and deliver a batch while `expensive` runs a program."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "rules.yaml").write_text(RULES.replace("FOLDER", str(tmp_path)))
    environ = {
        "EVENTBRIDGE_HOME": str(tmp_path),
        "EVENTBRIDGE_FILE_TARGET_FOLDERS": str(tmp_path),
        "EVENTBRIDGE_RULES_FOLDER": str(tmp_path / "rules"),
        "EVENTBRIDGE_ROUTE_SLICE_TIMEOUT": "5",
    }

    def run(
        router: ConnectRouter, program: str, poisoned: Container[int] = (3,), budget: str = "0.5"
    ) -> ExpensiveRuntime:
        (tmp_path / "program").write_text(program)
        settings = Settings.from_mapping(environ | {"EVENTBRIDGE_ROUTE_RULE_CPU_BUDGET": budget})
        runtime = ExpensiveRuntime(**vars(open_runtime(settings, connections_from_environment({}))))
        source = runtime.open_source(runtime.rule_set().buses["orders"])
        bodies = [
            {"specversion": "1.0", "id": str(n), "source": "/s", "type": "t"}
            | {"subject": POISONED if n in poisoned else "good"}
            for n in range(8)
        ]
        source.publish([(json.dumps(body).encode(), None) for body in bodies])  # type: ignore[attr-defined]
        source.close()
        deliver_batch(runtime, "orders", router, Stop())
        return runtime

    return run


def lines(runtime: Runtime, name: str) -> list[str]:
    """Return the ids that a rule's target has received."""
    path = runtime.settings.home / f"{name}.jsonl"
    return [json.loads(line)["id"] for line in path.read_text().splitlines()] if path.exists() else []


def test_a_program_that_loops_delays_no_other_rule_on_spark(
    spark_server: SparkConnectServer, deliver: Callable[..., ExpensiveRuntime]
) -> None:
    """Other rules are delivered in the batch; the rest of its share is a deferred match, routed once it is fixed."""
    router = ConnectRouter(spark_server.url, route_with_poison)
    runtime = deliver(router, "loop")

    assert lines(runtime, "cheap") == lines(runtime, "other") == list("01234567")
    assert lines(runtime, "expensive") == list("012")
    assert [(each.reason, each.count) for each in runtime.ledger.deferred_matches.waiting()] == [("budget", 5)]
    (runtime.settings.home / "program").write_text("$.id")
    deliver_deferred_matches(runtime, "orders", router, Stop())
    assert lines(runtime, "expensive") == list("01234567")
    assert audit(runtime).differences == ()


JSONATA = (
    RULES
    + """
  jsonata:
    bus: orders
    pattern: {}
    targets: {lines: {type: file, path: FOLDER/jsonata.jsonl, transform: {form: JSONATA, value: '{"id": id & ""}'}}}
  looping:
    bus: orders
    pattern: {}
    targets:
      lines:
        type: file
        path: FOLDER/looping.jsonl
        transform:
          form: JSONATA
          value: '($f := function($x) { $f($x + 1) }; subject = "poison" ? $f(1) : {"id": id})'
"""
)


def test_jsonata_that_loops_delays_no_other_rule_on_spark(
    spark_server: SparkConnectServer, deliver: Callable[..., ExpensiveRuntime], tmp_path: Path
) -> None:
    """The evaluator itself, in Spark's workers: cheap rules and another with JSONATA get everything in its batch.

    Of five events that loop for a second each two or three fit the budget, and fail; all are dead letters in the end.
    """
    (tmp_path / "rules" / "rules.yaml").write_text(JSONATA.replace("FOLDER", str(tmp_path)))
    router = ConnectRouter(spark_server.url)
    runtime = deliver(router, "$.id", poisoned=range(3, 8), budget="2")

    assert lines(runtime, "cheap") == lines(runtime, "jsonata") == list("01234567")
    assert lines(runtime, "looping") == list("012")
    (left,) = runtime.ledger.deferred_matches.waiting()
    assert (left.rule, left.reason) == ("looping", "budget")
    assert left.count + len(list(dead_letters(runtime))) == 5
    deliver_deferred_matches(runtime, "orders", router, Stop())
    assert {dead_letter["rule"] for dead_letter in dead_letters(runtime)} == {"looping"}
    assert {dead_letter["reason"] for dead_letter in dead_letters(runtime)} == {"transform_failed"}
    assert sorted(dead_letter["event_id"] for dead_letter in dead_letters(runtime)) == list("34567")
    assert lines(runtime, "looping") == list("012")
    assert audit(runtime).differences == ()


@pytest.mark.parametrize("program", ["die", "loop on"])
def test_a_program_that_takes_its_worker_along_holds_its_rule(
    spark_server: SparkConnectServer, deliver: Callable[..., ExpensiveRuntime], program: str
) -> None:
    """Its worker dies, or ignores the end of its time: the rule is put on hold, its whole share as a deferred match."""
    runtime = deliver(ConnectRouter(spark_server.url, route_with_poison), program)

    assert lines(runtime, "cheap") == lines(runtime, "other") == list("01234567")
    assert lines(runtime, "expensive") == []
    waiting = runtime.ledger.deferred_matches.waiting()
    assert [(each.reason, each.state, each.count) for each in waiting] == [("route_failed", "on_hold", 8)]
    assert list(runtime.ledger.rules.list_on_hold()) == ["expensive"]
    assert audit(runtime).differences == ()
