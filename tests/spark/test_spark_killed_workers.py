"""Python workers are killed after routing, before their response: Spark repeats their tasks without harm."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from spark.own_server import own_server

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.pipeline.deliver import push_and_settle
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.route.stage import job_of, route, slices_of
from eventbridge.repair.audit import audit
from eventbridge.routing.job import RouteJob, SliceResult, Task
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.spark.route import ConnectRouter
from eventbridge.store.parquet import read_table
from eventbridge.testing.poison import FATAL_ONCE, mark_of, route_with_poison

RULES = """
buses:
  orders: {source: {type: embedded, partitions: 3, start_at: earliest}}
rules:
  everything:
    bus: orders
    pattern: {}
    targets:
      lines: {type: file, path: FOLDER/lines.jsonl}
"""
#: Events take turns among the partitions, each a buffer file and a slice: two of three workers are killed.
EVENTS, FATAL = 12, (3, 7)


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    """A runtime with events of three partitions, those of two of them fatal to their worker, once."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "rules.yaml").write_text(RULES.replace("FOLDER", str(tmp_path)))
    environ = {
        "EVENTBRIDGE_HOME": str(tmp_path),
        "EVENTBRIDGE_FILE_TARGET_FOLDERS": str(tmp_path),
        "EVENTBRIDGE_RULES_FOLDER": str(tmp_path / "rules"),
        "EVENTBRIDGE_PREPARE_TIMEOUT": "600",
    }
    runtime = open_runtime(Settings.from_mapping(environ), connections_from_environment({}))
    source = runtime.open_source(runtime.rule_set().buses["orders"])
    bodies = [
        {"specversion": "1.0", "id": str(number), "source": "/s", "type": "t"}
        | ({"subject": FATAL_ONCE.decode()} if number in FATAL else {})
        for number in range(EVENTS)
    ]
    source.publish([(json.dumps(body).encode(), None) for body in bodies])  # type: ignore[attr-defined]
    source.close()
    yield runtime
    runtime.close()


class Asked(ConnectRouter):
    """A router that notes how often it was asked."""

    times = 0

    def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        self.times += 1
        return super().route_slices(job, tasks)


def uncosted(detail: Any) -> Any:
    """Return what is recorded of a slice without the CPU time that it took."""
    return structs.replace(detail, cpu=0)


def rows_of(runtime: Runtime, path: str | None) -> list[dict[str, Any]]:
    """Return the rows of a delivery file."""
    return [] if path is None else read_table(runtime.store, path).to_pylist()


def test_files_of_workers_killed_before_they_respond_are_not_read(runtime: Runtime, tmp_path: Path) -> None:
    """Spark repeats their tasks in one job; each slice names one file, with the rows of an undisturbed route.

    The files of killed workers are damaged here: reading them would fail. The batch is delivered, each event once.
    """
    batch_id = listen(runtime, "orders") or ""
    buffer(runtime, batch_id)
    slices = slices_of(runtime.ledger.files.list_for_batch(batch_id, "buffer"))
    undisturbed = InProcessRouter(runtime.store).route_slices(
        job_of(runtime, runtime.ledger.batches.get(batch_id)), slices
    )
    expected = {result.slice_id: (uncosted(result.detail), rows_of(runtime, result.path)) for result in undisturbed}
    before = set(runtime.store.list("deliveries/"))

    with own_server(tmp_path / "spark", master="local[2,3]") as server:
        router = Asked(server.url, route_with_poison)
        handed_out = route(runtime, batch_id, router)

    killed = [piece for piece in slices if runtime.store.exists(mark_of(piece))]
    named = {file.key: file for file in runtime.ledger.files.list_for_batch(batch_id, "delivery")}
    left = set(runtime.store.list("deliveries/")) - before - {file.path for file in named.values()}
    assert (router.times, len(slices), len(killed), len(left)) == (1, 3, 2, 2)
    assert {key: (uncosted(file.detail), rows_of(runtime, file.path)) for key, file in named.items()} == expected

    for path in left:
        runtime.store.put(path, b"left over")
    push_and_settle(runtime, batch_id, handed_out, Stop())

    lines = (tmp_path / "lines.jsonl").read_text().splitlines()
    assert sorted(int(json.loads(line)["id"]) for line in lines) == list(range(EVENTS))
    assert runtime.ledger.batches.get(batch_id).state == "committed"
    assert audit(runtime).differences == ()
