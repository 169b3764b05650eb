"""Batches on an S3 store need few requests, and are finished after a failure of the server or of a process."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from demo.s3_server import S3Request, S3Server
from pipeline.modes import deliver_all

from eventbridge import fault_points
from eventbridge.config.settings import Settings
from eventbridge.delivery.push import push
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.pipeline.ingest import checking
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.route import stage as route_module
from eventbridge.pipeline.route.stage import route
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.repair.audit import audit
from eventbridge.routing.task import InProcessRouter
from eventbridge.rules.types import SMALL_CHUNK

#: What the product promises of 50,000 events and 12 rules.
MAX_PUTS = 60
#: The test takes every size, and so the number of events, this much smaller: the number of files is the same.
SCALE = 20

#: The most deliveries of a chunk of http deliveries.
HTTP_CHUNK = SMALL_CHUNK.deliveries


class Killed(BaseException):
    """The process died here."""


@pytest.fixture
def on_s3(site: Any, s3_server: S3Server) -> Any:
    """The installation, its store an empty place on the S3 server."""
    site.environ["EVENTBRIDGE_STORE_URI"] = f"s3://lake@tests/{uuid.uuid4().hex}"
    site.environ["EVENTBRIDGE_CONN_LAKE"] = s3_server.connection
    return site


def twelve_rules(folder: Path) -> str:
    """Return rules of which each takes a twelfth of the events, but one takes half; together three matches in two."""
    patterns = [{"data": {"kind": [f"k{number}"]}} for number in range(11)] + [{"data": {"even": [True]}}]
    rules = {
        f"r{number}": {
            "bus": "orders",
            "pattern": pattern,
            "priority": ("high", "medium", "low")[number % 3],
            "targets": {"lines": {"type": "file", "path": str(folder / f"{number}.jsonl")}},
        }
        for number, pattern in enumerate(patterns)
    }
    bus = {"source": {"type": "embedded", "topics": ["placed"], "partitions": 2, "start_at": "earliest"}}
    return json.dumps({"buses": {"orders": bus}, "rules": rules})


def event(number: int) -> bytes:
    """Return the n-th event."""
    attributes = {"specversion": "1.0", "id": str(number), "source": "/shop", "type": "order.placed"}
    return json.dumps(attributes | {"data": {"kind": f"k{number % 12}", "even": number % 2 == 0}}).encode()


def test_a_batch_of_12_rules_is_few_puts(
    on_s3: Any, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50,000 events by 12 rules: at most 60 puts from the first stage to the last, and one listing a stage.

    `make test-s3` does the same in full size, with HTTP targets, settings as they are, retries and redrives.
    """
    monkeypatch.setattr(checking, "ROW_GROUP_ROWS", 2_000 // SCALE)
    monkeypatch.setattr(route_module, "ROW_GROUP_ROWS", 2_000 // SCALE)
    usual = Settings.from_mapping({"EVENTBRIDGE_STORE_URI": "s3://tests/x"})
    sizes = ("buffer_range_events", "segment_responses")
    on_s3.write_rules(twelve_rules(tmp_path))
    on_s3.publish(*(event(number) for number in range(50_000 // SCALE)))
    patient = {"prepare_timeout": 600, "push_timeout": 600, "segment_interval": 60}  # on a busy machine
    scaled = {name: getattr(usual, name) // SCALE for name in sizes}
    runtime = on_s3.reopen(**patient, **scaled, chunk_max_deliveries=HTTP_CHUNK // SCALE)
    seen: dict[str, list[S3Request]] = {}

    def counted(name: str, stage: Callable[[], Any]) -> Any:
        s3_server.requests.clear()
        result = stage()
        seen[name] = list(s3_server.requests)
        return result

    batch_id = counted("listen", lambda: listen(runtime, "orders"))
    counted("buffer", lambda: buffer(runtime, batch_id))
    chunks = counted("route", lambda: route(runtime, batch_id, InProcessRouter(runtime.store)))
    counted("push", lambda: [push(runtime, batch_id, chunk) for chunk in chunks])
    counted("write_dead_letters", lambda: write_dead_letters(runtime, batch_id))
    counted("schedule_retries", lambda: schedule_retries(runtime, batch_id))
    counted("commit", lambda: commit(runtime, batch_id))

    assert runtime.ledger.batches.get(batch_id).state == "committed"
    assert sum(row["delivered"] for row in audit(runtime).deliveries.values()) > 70_000 // SCALE
    puts = {name: sum(request.is_put for request in requests) for name, requests in seen.items()}
    assert puts["buffer"] >= 2
    assert puts["route"] >= 10
    assert puts["push"] == len(chunks) >= 12
    assert sum(puts.values()) <= MAX_PUTS, puts
    listings = {name: sum(request.is_listing for request in requests) for name, requests in seen.items()}
    assert max(listings.values()) <= 1, listings


def test_a_server_that_fails_now_and_then_costs_time_only(
    on_s3: Any, s3_server: S3Server, order: Callable[..., bytes], tmp_path: Path
) -> None:
    """500 and 503 SlowDown on every seventh request, and lost responses: all is delivered, everything is reconciled."""
    numbers, responses = count(1), count(1)
    s3_server.refuse = lambda request: {0: "SlowDown", 7: "InternalError"}.get(next(numbers) % 14)
    s3_server.lose_response = lambda request: request.method == "PUT" and next(responses) % 5 == 0
    on_s3.write_rules(one_rule(tmp_path))
    on_s3.publish(*(order(number) for number in range(20)))

    deliver_all(on_s3.runtime, "orders")

    assert next(numbers) > 14
    assert next(responses) > 5
    assert audit(on_s3.runtime).differences == ()
    assert len((tmp_path / "lines.jsonl").read_text().splitlines()) == 20


def test_killed_after_any_write_leaves_garbage_only(on_s3: Any, order: Callable[..., bytes], tmp_path: Path) -> None:
    """Dead between a file and its record in the ledger, at every write of a batch: the next run finishes it."""
    on_s3.write_rules(one_rule(tmp_path))
    written = 0
    for fatal in range(1, 100):
        on_s3.publish(*(order(f"{fatal}-{number}") for number in range(4)))
        written += 4
        runtime = on_s3.reopen()
        if not dies_at_write(fatal, runtime):
            break
        runtime = on_s3.reopen()
        deliver_until_idle(runtime, "orders", InProcessRouter(runtime.store))

        assert audit(runtime).differences == ()
        ids = {json.loads(line)["id"] for line in (tmp_path / "lines.jsonl").read_text().splitlines()}
        assert len(ids) == written
    assert fatal >= 6


def one_rule(folder: Path) -> str:
    """Return a rule that takes every order."""
    return (
        "buses: {orders: {source: {type: embedded, topics: [placed], partitions: 2, start_at: earliest}}}\n"
        "rules: {all: {bus: orders, pattern: {}, targets: {lines: {type: file, path: "
        f"{folder}/lines.jsonl}}}}}}}}\n"
    )


def dies_at_write(fatal: int, runtime: Any) -> bool:
    """Deliver until idle, but die when the n-th file is written; whether that came to be."""
    writes = count(1)
    lock = threading.Lock()

    def hook(point: str) -> None:
        with lock:
            if point in ("store.put.done", "store.create.done") and next(writes) == fatal:
                raise Killed(point)

    fault_points.install(hook)
    try:
        deliver_until_idle(runtime, "orders", InProcessRouter(runtime.store))
    except Killed:
        return True
    finally:
        fault_points.install(None)
    return False


def test_more_is_written_at_a_time_than_on_a_disk() -> None:
    """Each file costs a put: by default, few large files go into an S3 store."""
    on_s3 = Settings.from_mapping({"EVENTBRIDGE_STORE_URI": "s3://lake@tests/x"})
    reported = Settings.from_mapping({"EVENTBRIDGE_STORE_URI": "s3://tests", "EVENTBRIDGE_SEGMENT_RESPONSES": "100"})

    assert (on_s3.segment_responses, on_s3.segment_interval) == (HTTP_CHUNK, 12.0)
    assert (on_s3.buffer_range_events, Settings().buffer_range_events) == (25_000, 20_000)
    assert reported.segment_responses == 100
    assert (Settings().segment_responses, Settings().segment_interval) == (2_000, 1.0)
