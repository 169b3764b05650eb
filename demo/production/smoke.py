"""Delivers flights through the production shape, kills workers and Spark's master, and proves that none is lost."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, Final

import httpx
import psutil
from confluent_kafka import Consumer, TopicPartition

from demo.flights import flight_event, flight_rows
from demo.places import ROOT, DemoError
from demo.production.supervisor import Supervisor
from demo.settled import unsettled
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.stages.operate.audit import audit
from eventbridge.stages.runtime.runtime import Runtime

_BUS: Final = "flights"
_BATCH: Final = 500
_PER_SECOND: Final = 1_000.0
_STALL_SECONDS: Final = 180.0
_SAY_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.3


#: What is killed, one of each kind, in this order.
MORTAL: Final = ("airflow-worker", "spark-master", "spark-worker")


def smoke(supervisor: Supervisor, total: int, say: Callable[[str], None], mortal: Collection[str] = MORTAL) -> int:
    """Return 0 if every flight is where the books say, else 1; raises DemoError if nothing moves any more.

    One process of each service of `mortal` is killed while a batch is open.
    """
    environ = supervisor.environment("eventbridge-api")
    with closing(Runtime.open(Settings.from_mapping(environ), connections_from_environment(environ))) as work:
        run = _Run(supervisor, work, total, say, mortal)
        run.deliver()
        return run.prove(environ["EVENTBRIDGE_CONN_KAFKA"].removeprefix("kafka://"))


class _Run:
    def __init__(
        self, supervisor: Supervisor, work: Runtime, total: int, say: Callable[[str], None], mortal: Collection[str]
    ) -> None:
        self._supervisor = supervisor
        self._work = work
        self._total = total
        self._say = say
        self._expected: Counter[str] = Counter()
        self._published = 0
        self._error: Exception | None = None
        self._mortal = [name for name in MORTAL if name in mortal]

    def deliver(self) -> None:
        """Publish everything and return once it is settled; each of the kinds is killed while a batch is open."""
        began = time.monotonic()
        publisher = threading.Thread(target=self._publish, name="publisher", daemon=True)
        publisher.start()
        last, moved, said = "", time.monotonic(), 0.0
        while True:
            self._supervisor.look()
            if self._error is not None:
                raise DemoError(f"Publishing failed: {self._error}")
            self._kill_one()
            now = self._progress()
            if now != last:
                last, moved = now, time.monotonic()
            if time.monotonic() - said >= _SAY_SECONDS:
                said = time.monotonic()
                self._say(f"  {said - began:4.0f} s  {now}")
            if not publisher.is_alive() and self._is_settled():
                break
            if time.monotonic() - moved > _STALL_SECONDS:
                raise DemoError(f"Nothing has moved for {_STALL_SECONDS:g} s: {now}; {unsettled(self._work)}")
            time.sleep(_LOOK_SECONDS)
        self._say(f"All settled {time.monotonic() - began:.0f} s after the first flight was published.")

    def prove(self, kafka: str) -> int:
        """Compare the books with the events published, and with what lies in the targets' topics."""
        books = audit(self._work)
        problems = list(books.differences)
        events = books.events
        self._say(
            f"\nBooks of {books.batches} batches: {events['range_total']:,} offsets = {events['read']:,} read + "
            f"{events['gaps']:,} gaps; {events['read']:,} read = {events['malformed']:,} malformed + "
            f"{events['duplicate']:,} duplicate + {events['valid']:,} valid"
        )
        if events["valid"] != self._total:
            problems.append(f"{self._total:,} flights were published, {events['valid']:,} are in the books")
        for key, row in sorted(books.deliveries.items()):
            rule = key.partition("/")[0]
            ids = _delivery_ids(kafka, rule)
            twice = len(ids) - len(set(ids))
            self._say(
                f"{key}: {self._expected[rule]:,} expected, {row['matched']:,} matched, "
                f"{row['delivered']:,} delivered; its topic has {len(set(ids)):,}, {twice:,} twice"
            )
            if not self._expected[rule] == row["matched"] == row["delivered"] == len(set(ids)):
                problems.append(f"{key}: these numbers differ")
        if set(self._expected) != {key.partition("/")[0] for key in books.deliveries}:
            problems.append(f"flights match {', '.join(self._expected)}; the books have {', '.join(books.deliveries)}")
        if "failed" in (self._supervisor.folder / "logs" / "airflow-clean.log").read_text():
            problems.append("airflow-clean could not clean Airflow's database")
        for kind in self._mortal:
            problems.append(f"no {kind} was killed: nothing was under way for long enough")
        for problem in problems:
            self._say(f"  DIFFERENCE {problem}")
        self._say(
            f"\n{len(problems)} differences." if problems else "\nThe books balance: every flight is accounted for."
        )
        return 1 if problems else 0

    def _publish(self) -> None:
        try:
            with httpx.Client(headers={"Authorization": f"Bearer {self._token()}"}, timeout=60) as client:
                url = f"http://{self._supervisor.native.address('eventbridge-api')}:8090/buses/{_BUS}/events"
                rows = islice(flight_rows(), self._total)
                began = time.monotonic()
                while batch := [flight_event(row) for row in islice(rows, _BATCH)]:
                    time.sleep(max(0.0, began + self._published / _PER_SECOND - time.monotonic()))
                    self._send(client, url, batch)
        except Exception as error:
            self._error = error

    def _send(self, client: httpx.Client, url: str, batch: Sequence[dict[str, Any]]) -> None:
        content = json.dumps(batch, separators=(",", ":"))
        answer = client.post(url, content=content, headers={"Content-Type": "application/cloudevents-batch+json"})
        if not answer.is_success or answer.json()["published"] != len(batch):
            raise DemoError(f"{url} answers {answer.status_code}: {answer.text[:300]}")
        for event in batch:
            if event["type"] == "flight.cancelled":
                self._expected["cancellations"] += 1
            elif event["data"]["dep_delay"] > 15:
                self._expected["delayed-departures"] += 1
        self._published += len(batch)

    def _token(self) -> str:
        command = ["eventbridge", "tokens", "create", "smoke", "--scope", f"publish:{_BUS}"]
        environ = self._supervisor.environment("eventbridge-api")
        made = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False)
        if made.returncode:
            raise DemoError(f"{' '.join(command)} failed: {made.stderr.strip()}")
        return made.stdout.strip().splitlines()[-1]

    def _kill_one(self) -> None:
        """Kill a Celery worker while it runs a task, and then Spark's master and a worker while batches are routed."""
        if not self._mortal or not any(b.state != "committed" for b in self._work.ledger.batches(limit=20)):
            return
        killed = self._kill_celery() if self._mortal[0] == "airflow-worker" else self._kill_spark(self._mortal[0])
        if killed:
            del self._mortal[0]

    def _kill_celery(self) -> bool:
        for name in self._names("airflow-worker"):
            tasks = _descendants(self._supervisor.running[name].pid) - _children(self._supervisor.running[name].pid)
            if tasks:
                self._supervisor.kill(name)
                self._say(f"  kill -9 {name}, with {len(tasks)} processes of tasks")
                return True
        return False

    def _kill_spark(self, service: str) -> bool:
        if not any(batch.state == "buffered" for batch in self._work.ledger.batches(limit=20)):
            return False
        name = self._names(service)[0]
        executors = _children(self._supervisor.running[name].pid)
        self._supervisor.kill(name)
        self._say(f"  kill -9 {name}, with {len(executors)} processes of executors")
        return True

    def _names(self, service: str) -> list[str]:
        return sorted(name for name in self._supervisor.running if name.startswith(service))

    def _progress(self) -> str:
        batches = self._work.ledger.batches(limit=None)
        committed = sum(batch.state == "committed" for batch in batches)
        opened = ", ".join(f"{batch.state}" for batch in batches if batch.state != "committed")
        return f"published {self._published:>7,}   batches {committed:>3} committed; open: {opened or 'none'}"

    def _is_settled(self) -> bool:
        done = any(batch.state == "committed" for batch in self._work.ledger.batches(limit=20))
        return done and not unsettled(self._work)


def _children(pid: int) -> set[int]:
    return {child.pid for child in psutil.Process(pid).children()}


def _descendants(pid: int) -> set[int]:
    return {child.pid for child in psutil.Process(pid).children(recursive=True)}


def _delivery_ids(kafka: str, topic: str) -> list[bytes]:
    """Return the delivery id of every message of a topic."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "smoke", "enable.auto.commit": False})
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
