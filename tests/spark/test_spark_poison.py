"""An event that kills or blocks a Spark worker becomes one dead letter, on a real Spark whose canary still passes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from spark.own_server import own_server
from stored import dead_letters

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.errors import SparkError
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.route.stage import route
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.repair.audit import audit
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.spark.route import ConnectRouter
from eventbridge.spark.server import SparkConnectServer
from eventbridge.testing.poison import DEADLY, ENDLESS, KILLING, route_with_poison

RULES = """
buses:
  orders: {source: {type: embedded, partitions: 1, start_at: earliest}}
rules:
  everything:
    bus: orders
    pattern: {}
    targets:
      lines: {type: file, path: lines.jsonl}
"""


@pytest.fixture
def land(tmp_path: Path) -> Iterator[Callable[..., tuple[Runtime, str]]]:
    """Publish and land a batch of events with these subjects."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "rules.yaml").write_text(RULES)
    environ = {
        "EVENTBRIDGE_HOME": str(tmp_path),
        "EVENTBRIDGE_FILE_TARGET_FOLDERS": str(tmp_path),
        "EVENTBRIDGE_RULES_FOLDER": str(tmp_path / "rules"),
        "EVENTBRIDGE_ROUTE_SLICE_TIMEOUT": "5",
        "EVENTBRIDGE_PREPARE_TIMEOUT": "600",  # a worker that loops takes its 5 s each time it is tried
    }
    runtime = open_runtime(Settings.from_mapping(environ), connections_from_environment({}))

    def make(*subjects: str) -> tuple[Runtime, str]:
        source = runtime.open_source(runtime.rule_set().buses["orders"])
        bodies = [
            {"specversion": "1.0", "id": str(number), "source": "/s", "type": "t", "subject": subject}
            for number, subject in enumerate(subjects)
        ]
        source.publish([(json.dumps(body).encode(), None) for body in bodies])  # type: ignore[attr-defined]
        source.close()
        batch_id = listen(runtime, "orders") or ""
        buffer(runtime, batch_id)
        return runtime, batch_id

    yield make
    runtime.close()


@pytest.mark.parametrize("poison", [DEADLY, ENDLESS], ids=["ends its worker", "keeps its worker"])
def test_poison_is_one_dead_letter(
    spark_server: SparkConnectServer, land: Callable[..., tuple[Runtime, str]], poison: bytes
) -> None:
    """An event that kills or blocks the Python worker is a dead letter; its batch is routed without it."""
    runtime, batch_id = land(*["good"] * 5, poison.decode(), *["good"] * 6)

    route(runtime, batch_id, ConnectRouter(spark_server.url, route_with_poison))
    write_dead_letters(runtime, batch_id)
    schedule_retries(runtime, batch_id)
    commit(runtime, batch_id)

    (record,) = dead_letters(runtime, whole=True)
    assert (record["reason"], record["event_id"]) == ("route_failed", "5")
    assert "worker" in record["detail"]
    assert sum(chunk.rows for chunk in runtime.ledger.chunks.list_for_batch(batch_id)) == 11
    assert audit(runtime).differences == ()


def test_a_spark_server_that_has_ended_blames_no_event(
    spark_server: SparkConnectServer, land: Callable[..., tuple[Runtime, str]]
) -> None:
    """If the server has ended, the canary fails too: the stage fails, and another Spark routes the batch."""
    runtime, batch_id = land(*["good"] * 8)

    with pytest.raises(SparkError):
        route(runtime, batch_id, ConnectRouter(SparkConnectServer().url))  # which is never started

    assert runtime.ledger.route_tries.counts(batch_id) == {"": 1}
    route(runtime, batch_id, ConnectRouter(spark_server.url))
    assert sum(chunk.rows for chunk in runtime.ledger.chunks.list_for_batch(batch_id)) == 8


def test_an_event_that_kills_java_is_one_dead_letter(
    spark_server: SparkConnectServer, tmp_path: Path, land: Callable[..., tuple[Runtime, str]]
) -> None:
    """Spark itself dies: the stage fails and counts that, and a restarted Spark routes the batch without the event."""
    runtime, batch_id = land(KILLING.decode(), "good")
    (landed,) = runtime.ledger.files.list_for_batch(batch_id, "buffer")
    # what earlier runs found out: together and as a slice of two it ended Spark, and alone twice already
    runtime.ledger.route_tries.begin(batch_id, f"{landed.key}/000000")
    for _ in range(2):
        runtime.ledger.route_tries.begin(batch_id, f"{landed.key}/000000-000001")

    with own_server(tmp_path / "spark") as server, pytest.raises(SparkError):
        route(runtime, batch_id, ConnectRouter(server.url, route_with_poison))
    route(runtime, batch_id, ConnectRouter(spark_server.url, route_with_poison))
    write_dead_letters(runtime, batch_id)
    schedule_retries(runtime, batch_id)
    commit(runtime, batch_id)

    (record,) = dead_letters(runtime)
    assert (record["reason"], record["event_id"]) == ("route_failed", "0")
    assert sum(chunk.rows for chunk in runtime.ledger.chunks.list_for_batch(batch_id)) == 1
    assert audit(runtime).differences == ()
