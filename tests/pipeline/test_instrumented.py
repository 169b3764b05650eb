"""Telemetry reports the end of every stage, every push and every check of the watcher."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eventbridge.airflow.watch import Watch
from eventbridge.errors import NotFoundError
from eventbridge.pipeline.deliver import deliver_batch, deliver_retries
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.telemetry.protocol import NO_TELEMETRY, CheckEnded, PushEnded, StageEnded, TargetPushed
from eventbridge.testing.telemetry import RecordingTelemetry

RULES = """
buses: {{orders: {{source: {{type: embedded, topics: [placed], partitions: 2, start_at: earliest}}}}}}
rules:
  all: {{bus: orders, pattern: {{}}, targets: {{log: {{type: file, path: "{path}"}}}}}}
"""

STAGES = ["listen", "buffer", "route", "push", "write_dead_letters", "schedule_retries", "commit"]

Order = Callable[..., bytes]


@pytest.fixture
def telemetry() -> RecordingTelemetry:
    """Return a telemetry that records its reports."""
    return RecordingTelemetry()


@pytest.fixture
def runtime(site: Any, order: Order, telemetry: RecordingTelemetry, tmp_path: Path) -> Runtime:
    """Return a runtime with telemetry, with three events on its bus and a file target."""
    site.write_rules(RULES.format(path=tmp_path / "out" / "log.jsonl"))
    site.publish(order(1), order(2), order(3))
    return replace(site.reopen(), telemetry=telemetry)


def delivered(runtime: Runtime) -> str:
    """Move one batch through all stages and return its id."""
    batch_id = deliver_batch(runtime, "orders", InProcessRouter(runtime.store), Stop())
    assert batch_id is not None
    return batch_id


def stages(telemetry: RecordingTelemetry) -> list[StageEnded]:
    """Return the stages that were reported, in order."""
    return [each for each in telemetry.reported if isinstance(each, StageEnded)]


def test_every_stage_of_a_batch_is_reported(runtime: Runtime, telemetry: RecordingTelemetry, clock: Any) -> None:
    """Each stage is reported once, in order, with its batch and times; listen also reports the runner."""
    batch_id = delivered(runtime)

    assert [each.stage for each in stages(telemetry)] == STAGES
    assert {each.batch_id for each in stages(telemetry)} == {batch_id}
    assert {each.error for each in stages(telemetry)} == {None}
    assert [each.runner for each in stages(telemetry)] == ["orders"] + [None] * 6
    assert {each.started_at for each in stages(telemetry)} == {clock()}


def test_a_push_is_reported_by_target(runtime: Runtime, telemetry: RecordingTelemetry) -> None:
    """Before the end of the stage, a push is reported with the outcomes of each target in the chunk."""
    batch_id = delivered(runtime)

    ((index, push),) = [(n, each) for n, each in enumerate(telemetry.reported) if isinstance(each, PushEnded)]
    assert (push.batch_id, push.targets) == (batch_id, (TargetPushed("all", "log", 3, 3, 3, 0, 0),))
    after = telemetry.reported[index + 1]
    assert isinstance(after, StageEnded)
    assert after.stage == "push"


def test_planning_that_finds_nothing_names_no_batch(runtime: Runtime, telemetry: RecordingTelemetry) -> None:
    """Planning that finds nothing is reported without a batch, and retry stages with their runner."""
    assert deliver_retries(runtime, "orders", Stop()) is None

    reported = [(each.stage, each.runner, each.batch_id) for each in stages(telemetry)]
    assert reported == [("settle_stale", "orders", None), ("plan_retries", "orders", None)]


def test_a_stage_that_fails_is_reported_with_its_error(runtime: Runtime, telemetry: RecordingTelemetry) -> None:
    """A failing stage is reported with the class of its error, which is raised as usual."""
    with pytest.raises(NotFoundError):
        listen(runtime, "nobody")

    (ended,) = stages(telemetry)
    assert (ended.stage, ended.runner, ended.batch_id, ended.error) == ("listen", "nobody", None, "NotFoundError")


def test_deliveries_do_not_depend_on_telemetry(
    runtime: Runtime, telemetry: RecordingTelemetry, caplog: pytest.LogCaptureFixture
) -> None:
    """If every telemetry call fails, everything is delivered, and the log names the missing reports."""
    telemetry.error = RuntimeError("the collector is away")
    with caplog.at_level(logging.WARNING):
        batch_id = delivered(runtime)

    assert runtime.ledger.batches.get(batch_id).state == "committed"
    assert telemetry.reported == []
    assert "telemetry failed, and StageEnded" in caplog.text


def test_a_look_of_the_watcher_is_reported(runtime: Runtime, telemetry: RecordingTelemetry, clock: Any) -> None:
    """Each check of the watcher is reported with the runners for which it started runs."""
    watch = Watch(runtime)
    started = watch.check()

    assert telemetry.reported == [CheckEnded(clock(), clock(), tuple(started))]
    assert started
    watch.close()
    assert telemetry.closed


def test_without_telemetry_the_clock_is_not_read(site: Any) -> None:
    """By default a runtime has a constant telemetry, which reports nothing."""
    assert site.runtime.telemetry is NO_TELEMETRY

    asked: list[None] = []
    idle = replace(site.runtime, clock=lambda: asked.append(None))
    with pytest.raises(NotFoundError):
        listen(idle, "nobody")
    assert asked == []


def test_a_delivery_makes_no_object_of_opentelemetry() -> None:
    """The code that delivers does not even import OpenTelemetry."""
    code = (
        "import sys\nimport eventbridge.pipeline.deliver\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'opentelemetry'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
