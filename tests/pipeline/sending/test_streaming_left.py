"""What a streaming task does not send itself is left to the close of its batch, or to the slow lane; the rest goes at
once.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from pathlib import Path

from demo.s3_server import S3Server
from pipeline.delivering import RUNNER, Sending, rules, segment_rows
from pipeline.ordering import keyed, publish
from pipeline.sending.test_s3_target import Bucket
from pipeline.streaming_tasks import a_streaming_task, crm_requests, ids, until

from eventbridge.repair.audit import audit
from eventbridge.runtime.stop import Stop
from eventbridge.streaming.lease import Bounds
from eventbridge.streaming.routing import targets_sent_at_close
from eventbridge.streaming.task import deliver_streaming

#: Batches so short that a test sees the next one.
SHORT = f"runners: {{{RUNNER}: {{mode: streaming, streaming: {{batch_interval: 1s}}}}}}\n"

EXPENSIVE = """  expensive:
    bus: orders
    pattern: {type: [order.placed], data: {customer: [a]}}
    targets: {lines: {type: file, path: FILE, transform: {form: JSONATA, value: '{"n": data.number}'}}}
"""


def test_the_deliveries_left_to_the_close_follow_from_the_target(sending: Sending) -> None:
    """One in order, or by spans, waits for the close, whatever its type."""
    sending.site.environ["EVENTBRIDGE_CONN_SHOP_S3"] = "s3://somebody:secret@127.0.0.1:1"
    targets = {
        "bucket": "{type: s3, connection: shop_s3, bucket: tests, prefix: p}",
        "crm": "{type: file, path: /tmp/never-written/crm.jsonl}",
        "later": "{type: file, path: /tmp/never-written/later.jsonl, not_before: 1h}",
        "turns": "{type: file, path: /tmp/never-written/turns.jsonl, errors_tolerance: none}",
    }
    sending.write(SHORT + rules(targets))

    assert targets_sent_at_close(sending.runtime.rule_set()) == {("orders", "bucket"), ("orders", "turns")}


def lines_of(path: Path) -> list[dict[str, object]]:
    """Return what a file target wrote, in its order."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_streaming_task_counts_what_it_delivered_to_each_target(sending: Sending, tmp_path: Path) -> None:
    """Deliveries that were sent at once and those that the close sent count alike; a failure does not count."""
    targets = {
        "crm": "/healthy/crm",
        "refusing": "/status/400",
        "turns": f"{{type: file, path: {tmp_path}/turns.jsonl, ordering_key: $.data.customer}}",
    }
    sending.write(SHORT + rules(targets))
    publish(sending, *(keyed(number, "a") for number in range(7)))

    summary = deliver_streaming(sending.runtime, RUNNER, Stop(), Bounds(seconds=60, idle_seconds=1))

    assert +summary.delivered == {("orders", "crm"): 7, ("orders", "turns"): 7}
    assert summary.delivered.keys() >= {("orders", "refusing")}
    assert summary.events == 7


def test_a_close_sends_what_is_left_of_several_chunks(sending: Sending, tmp_path: Path) -> None:
    """Also where a chunk has nothing of the ordered target, and all of it gets a response."""
    sending.site.environ["EVENTBRIDGE_CHUNK_MAX_DELIVERIES"] = "4"
    targets = {
        "crm": "/healthy/crm",
        "turns": f"{{type: file, path: {tmp_path}/turns.jsonl, ordering_key: $.data.customer}}",
    }
    sending.write(SHORT + rules(targets))
    with a_streaming_task(sending):
        publish(sending, *(keyed(number, "a") for number in range(20)))
        until(lambda: len(lines_of(tmp_path / "turns.jsonl")) == 20)
        until(lambda: sending.runtime.ledger.batches.find(state="committed"))
        publish(sending, keyed(20, "a"))
        until(lambda: len(lines_of(tmp_path / "turns.jsonl")) == 21)

    (batch, *_) = reversed(sending.runtime.ledger.batches.find())
    assert len(sending.runtime.ledger.chunks.list_for_batch(batch.batch_id)) > 1
    assert [each["data"]["number"] for each in lines_of(tmp_path / "turns.jsonl")] == list(range(21))
    assert audit(sending.runtime).differences == ()


def test_everything_is_delivered_by_its_way(sending: Sending, s3_server: S3Server, tmp_path: Path) -> None:
    """In order, in spans, not before a time, as a shadow, by JSONATA: over several batches, each once, and reconciled.

    With the store in a bucket.
    """
    sending.site.environ["EVENTBRIDGE_CONN_SHOP_S3"] = s3_server.connection
    sending.site.environ["EVENTBRIDGE_STORE_URI"] = f"s3://shop_s3@tests/{uuid.uuid4().hex}"
    bucket = Bucket(s3_server, uuid.uuid4().hex)
    targets = {
        "crm": "/healthy/crm",
        "turns": f"{{type: file, path: {tmp_path}/turns.jsonl, ordering_key: $.data.customer}}",
        "bucket": bucket.target + "}",
        "later": f"{{type: file, path: {tmp_path}/later.jsonl, not_before: 2s}}",
        "mirror": '{type: http, url: "/healthy/mirror", allow_http: true, shadow_of: crm}',
    }
    sending.write(SHORT + rules(targets) + EXPENSIVE.replace("FILE", f"{tmp_path}/expensive.jsonl"))
    events = [(customer, number) for number in range(15) for customer in "ab"]
    with a_streaming_task(sending):
        for number in range(15):
            publish(sending, keyed(number, "a"), keyed(number, "b"))
            until(lambda number=number: len(crm_requests(sending)) == 2 * (number + 1))
            if number % 5 == 4:
                before = len(sending.runtime.ledger.batches.find())
                until(lambda before=before: len(sending.runtime.ledger.batches.find()) > before)
        until(lambda: len(lines_of(tmp_path / "turns.jsonl")) >= 30)
        until(lambda: len(lines_of(tmp_path / "expensive.jsonl")) >= 15)
        until(lambda: len(lines_of(tmp_path / "later.jsonl")) >= 30)

    turns = [(each["data"]["customer"], each["data"]["number"]) for each in lines_of(tmp_path / "turns.jsonl")]
    assert sorted(turns) == sorted(events)
    for customer in "ab":
        assert [number for other, number in turns if other == customer] == list(range(15))
    assert sorted(each["n"] for each in lines_of(tmp_path / "expensive.jsonl")) == list(range(15))
    batches = [each.batch_id for each in sending.runtime.ledger.batches.find() if each.kind == "normal"]
    by_close = {row["target"] for each in batches for row in segment_rows(sending.runtime, each)} & {"turns", "bucket"}
    assert by_close == {"turns", "bucket"}, "it is not left to the retries"
    objects = bucket.objects()
    assert Counter(each for found in objects.values() for each in found) == Counter(f"{c}-{n}" for c, n in events)
    assert Counter(each["path"] for each in sending.requests()) == {"/healthy/crm": 30, "/healthy/mirror": 30}
    assert set(ids(sending).values()) == {1}
    assert audit(sending.runtime).differences == ()
