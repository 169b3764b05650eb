"""The rules of `deploy/rules` in a smoke run: two Kafka topics must have exactly the matching flights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from demo.config import DemoError
from demo.proof import PrintLine, print_reconciliation
from demo.settled import unsettled
from eventbridge.repair.audit import Audit
from eventbridge.runtime.runtime import Runtime


class Topics:
    """The expected contents of the two topics, counted while flights are published."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._expected: Counter[str] = Counter()

    def expect(self, event: Mapping[str, Any]) -> None:
        """Count a published flight."""
        if event["type"] == "flight.cancelled":
            self._expected["cancellations"] += 1
        elif event["data"]["dep_delay"] > 15:
            self._expected["delayed-departures"] += 1

    def is_settled(self, runtime: Runtime, published: int) -> bool:
        """Return whether everything is settled."""
        done = any(batch.state == "committed" for batch in runtime.ledger.batches.find(limit=20))
        return done and not unsettled(runtime)

    def differences(self, runtime: Runtime, audited: Audit, print_line: PrintLine) -> list[str]:
        """Print the results of the reconciliation and the topics, and return the differences."""
        problems = [*audited.differences, *print_reconciliation(audited, print_line)]
        for key, row in sorted(audited.deliveries.items()):
            rule = key.partition("/")[0]
            ids = _delivery_ids(self._servers, rule)
            twice = len(ids) - len(set(ids))
            print_line(
                f"{key}: {self._expected[rule]:,} expected, {row['matched']:,} matched, "
                f"{row['delivered']:,} delivered; its topic has {len(set(ids)):,}, {twice:,} duplicates"
            )
            if not self._expected[rule] == row["matched"] == row["delivered"] == len(set(ids)):
                problems.append(f"{key}: these numbers differ")
        if set(self._expected) != {key.partition("/")[0] for key in audited.deliveries}:
            problems.append(
                f"flights match {', '.join(self._expected)}; the reconciliation has {', '.join(audited.deliveries)}"
            )
        return problems


def _delivery_ids(servers: str, topic: str) -> list[bytes]:
    """Return the delivery id of every message of a topic."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "smoke", "enable.auto.commit": False})
    try:
        partitions = [TopicPartition(topic, number) for number in consumer.list_topics(topic).topics[topic].partitions]
        ends = {part.partition: consumer.get_watermark_offsets(part)[1] for part in partitions}
        consumer.assign([TopicPartition(topic, number, 0) for number in ends])
        waiting = {number for number, end in ends.items() if end}
        ids: list[bytes] = []
        while waiting:
            for message in consumer.consume(1_000, timeout=1.0):
                if message.error():
                    raise DemoError(f"topic {topic} cannot be read: {message.error()}")
                ids.append(dict(message.headers() or [])["eventbridge-delivery-id"])
                if message.offset() + 1 >= ends[message.partition()]:
                    waiting.discard(message.partition())
        return ids
    finally:
        consumer.close()
