"""Rules change between two batches: the same Spark worker routes the next batch by the new rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.pipeline.deliver import deliver_batch
from eventbridge.repair.audit import audit
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.spark.route import ConnectRouter
from eventbridge.spark.server import SparkConnectServer

#: A runner of its own has a session, and so workers, of its own; one partition is one slice, which needs one of them.
BUS = "buses: {reloads: {source: {type: embedded, partitions: 1, start_at: earliest}}}\nrules:\n"
RULE = "  NAME: {bus: reloads, pattern: {subject: [SUBJECT]}, targets: {f: {type: file, path: FOLDER/NAME.jsonl}}}\n"


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    """A runtime without rules."""
    (tmp_path / "rules").mkdir()
    environ = {
        "EVENTBRIDGE_HOME": str(tmp_path),
        "EVENTBRIDGE_FILE_TARGET_FOLDERS": str(tmp_path),
        "EVENTBRIDGE_RULES_FOLDER": str(tmp_path / "rules"),
    }
    runtime = open_runtime(Settings.from_mapping(environ), connections_from_environment({}))
    yield runtime
    runtime.close()


def write_rules(runtime: Runtime, **subjects: str) -> None:
    """Write a rule for each name, which lets events of one subject through."""
    rules = "".join(RULE.replace("NAME", name).replace("SUBJECT", subject) for name, subject in subjects.items())
    text = (BUS + rules).replace("FOLDER", str(runtime.settings.home))
    (runtime.settings.home / "rules" / "rules.yaml").write_text(text)


def publish(runtime: Runtime, number: int) -> None:
    """Publish two events, one of each subject, numbered from there on."""
    source = runtime.open_source(runtime.rule_set().buses["reloads"])
    bodies = [
        {"specversion": "1.0", "id": str(number + index), "source": "/s", "type": "t", "subject": subject}
        for index, subject in enumerate(("odd", "even"))
    ]
    source.publish([(json.dumps(body).encode(), None) for body in bodies])  # type: ignore[attr-defined]
    source.close()


def received(runtime: Runtime, name: str) -> list[str]:
    """Return the ids that a rule's target has received."""
    path = runtime.settings.home / f"{name}.jsonl"
    return [json.loads(line)["id"] for line in path.read_text().splitlines()] if path.exists() else []


def test_changed_rules_are_in_force_at_the_next_batch_of_the_same_worker(
    spark_server: SparkConnectServer, runtime: Runtime
) -> None:
    """One rule changes and one is added: the worker compiles them once, and compiles nothing without a change."""

    def noting(store: Any, rule_set: Any, job: Any, task: Any) -> Any:  # within: goes to the worker by value
        import os

        from eventbridge.routing.program import route_program
        from eventbridge.routing.task import route_task

        result = route_task(store, rule_set, job, task)
        program = id(route_program(job.rule_set, rule_set, job.bus))
        store.put(f"noted/{job.batch_id}", f"{os.getpid()} {program}".encode())
        return result

    def delivered() -> tuple[int, int]:
        batch_id = deliver_batch(runtime, "reloads", ConnectRouter(spark_server.url, noting), Stop()) or ""
        worker, program = runtime.store.get(f"noted/{batch_id}").split()
        return int(worker), int(program)

    write_rules(runtime, changes="odd", goes="even")
    publish(runtime, 1)
    worker, program = delivered()
    write_rules(runtime, changes="even", comes="odd")
    publish(runtime, 3)
    next_worker, next_program = delivered()
    publish(runtime, 5)

    assert delivered() == (next_worker, next_program)
    assert next_worker == worker
    assert next_program != program
    assert received(runtime, "changes") == ["1", "4", "6"]
    assert received(runtime, "goes") == ["2"]
    assert received(runtime, "comes") == ["3", "5"]
    assert audit(runtime).differences == ()
