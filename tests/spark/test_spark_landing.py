"""Spark's workers land a large batch of a real broker, and record the same as one process would."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from services.brokers import Broker
from services.kafka import Kafka
from services.rocketmq import RocketMQ
from spark.own_server import own_server

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.model.file_detail import LandedRange
from eventbridge.pipeline.ingest import sharing
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.runtime.open import open_runtime
from eventbridge.spark.land import ConnectLander
from eventbridge.spark.server import SparkConnectServer
from eventbridge.store.parquet import read_table

_EVENTS = 2_000


@pytest.fixture
def environ(broker: Broker, tmp_path: Path) -> dict[str, str]:
    """The settings of an installation whose bus is a topic of three partitions."""
    broker.make_topics("landed", partitions=3)
    source = {"type": broker.kind, "connection": broker.kind, "topics": ["landed"], "start_at": "earliest"}
    target = {"type": "file", "path": str(tmp_path / "never-written")}
    rule = {"bus": "orders", "pattern": {}, "targets": {"lines": target}}
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "rules.yaml").write_text(
        json.dumps({"buses": {"orders": {"source": source}}, "rules": {"all": rule}})
    )
    return {
        "EVENTBRIDGE_RULES_FOLDER": str(tmp_path / "rules"),
        f"EVENTBRIDGE_CONN_{broker.kind.upper()}": broker.server.connection,
        "EVENTBRIDGE_BUFFER_RANGE_EVENTS": "100",
        "EVENTBRIDGE_PREPARE_TIMEOUT": "600",
    }


@pytest.fixture(scope="module")
def server(kafka: Kafka, rocketmq: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnectServer]:
    """A Spark Connect server whose workers know the brokers."""
    known = {"EVENTBRIDGE_CONN_KAFKA": kafka.connection, "EVENTBRIDGE_CONN_ROCKETMQ": rocketmq.connection}
    with own_server(tmp_path_factory.mktemp("spark"), environ={**os.environ, **known}) as running:
        yield running


def _landed(environ: dict[str, str], home: Path, lander: ConnectLander | None) -> tuple[list[Any], list[int]]:
    """Land the topic in an installation of its own; return the rows without their time, and counts of the ranges."""
    settings = Settings.from_mapping(environ | {"EVENTBRIDGE_HOME": str(home)})
    runtime = open_runtime(settings, connections_from_environment(environ))
    batch_id = listen(runtime, "orders")
    assert batch_id is not None
    buffer(runtime, batch_id, lambda bus: lander)
    files = runtime.ledger.files.list_for_batch(batch_id, "buffer")
    assert runtime.ledger.batches.get(batch_id).state == "buffered"
    rows = [row for file in files if file.path for row in read_table(runtime.store, file.path).to_pylist()]
    for row in rows:
        row.pop("arrived_at")
    details = [file.detail for file in files if isinstance(file.detail, LandedRange)]
    runtime.close()
    counts = [sum(getattr(each, name) for each in details) for name in ("read", "valid", "duplicate", "malformed")]
    return sorted(rows, key=lambda row: (row["partition_id"], row["offset"])), counts


def test_workers_land_what_one_process_lands(
    environ: dict[str, str], server: SparkConnectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and counts are the same, with ids repeated in other parts and invalid events."""
    monkeypatch.setattr(sharing, "LARGE_EVENTS", 1)
    runtime = open_runtime(
        Settings.from_mapping(environ | {"EVENTBRIDGE_HOME": str(tmp_path / "publisher")}),
        connections_from_environment(environ),
    )
    publisher = runtime.open_publisher(runtime.rule_set().buses["orders"])
    ids = [number % 1_500 for number in range(_EVENTS)]
    events = [{"specversion": "1.0", "id": str(number), "source": "/s", "type": "t"} for number in ids]
    publisher.publish([(json.dumps(event).encode() if event["id"] != "7" else b"none", None) for event in events])
    publisher.close()
    runtime.close()

    rows, counts = _landed(environ, tmp_path / "shared", ConnectLander(server.url))

    assert (rows, counts) == _landed(environ, tmp_path / "alone", None)
    assert counts == [_EVENTS, 1_499, 499, 2]


@pytest.mark.parametrize("broker", ["kafka"], indirect=True, ids=["kafka"])
@pytest.mark.parametrize(
    ("choice", "counts"),
    [("ignore", [300, 200, 0, 0]), ("deliver", [300, 300, 0, 0]), ("dead_letter", [300, 200, 0, 100])],
)
def test_workers_read_tombstones_as_the_bus_says(
    environ: dict[str, str],
    kafka: Kafka,
    server: SparkConnectServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    choice: str,
    counts: list[int],
) -> None:
    """Rows and counts are those of one process, with each third message without a value."""
    monkeypatch.setattr(sharing, "LARGE_EVENTS", 1)
    rules = tmp_path / "rules" / "rules.yaml"
    rules.write_text(rules.read_text().replace('"type": "kafka"', f'"type": "kafka", "tombstones": "{choice}"', 1))
    producer = Producer({"bootstrap.servers": kafka.servers})
    for number in range(300):
        event = json.dumps({"specversion": "1.0", "id": str(number), "source": "/s", "type": "t"}).encode()
        producer.produce("landed", event if number % 3 else None, key=f"key {number}")
    producer.flush(10)

    found = _landed(environ, tmp_path / "shared", ConnectLander(server.url))

    assert found == _landed(environ, tmp_path / "alone", None)
    assert found[1] == counts
