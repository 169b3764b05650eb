"""Helpers for the tests of push, settle, retry and commit: a running clock, a rule with HTTP targets, the stages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from demo.receiver import Receiver
from pipeline.modes import deliver_all, deliver_one_batch

from eventbridge.delivery.push import push
from eventbridge.event.cloudevent import parse_event
from eventbridge.model.batch import Batch
from eventbridge.model.outcome import SettledDelivery
from eventbridge.pipeline.deliver import deliver_retries
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.route.stage import route
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.pipeline.settle.settlement import read_settled
from eventbridge.routing.task import InProcessRouter
from eventbridge.rules.operations_bus import OPERATIONS_BUS
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.store.parquet import read_table
from eventbridge.testing.sources import messages_of

RUNNER = "orders"

#: A target that refuses the connection.
REFUSED = "http://127.0.0.1:1/refused"


@dataclass
class RunningClock:
    """The machine's clock, which a test may advance."""

    ahead: timedelta = field(default_factory=timedelta)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self.ahead += timedelta(seconds=seconds)


def rules(
    targets: Mapping[str, str], *, rule: str = "orders", runner: str = RUNNER, start_at: str = "earliest", **fields: str
) -> str:
    """Return a rule file of one rule that matches every order; a target is flow YAML, or a URL for `http`."""
    lines = [f"      {name}: {text if text[0] == '{' else http(text)}" for name, text in targets.items()]
    return "\n".join(
        [
            "buses:",
            "  orders:",
            f"    source: {{type: embedded, topics: [placed], partitions: 2, start_at: {start_at}}}",
            "rules:",
            f"  {rule}:",
            "    bus: orders",
            f"    runner: {runner}",
            "    pattern: {type: [order.placed]}",
            *(f"    {name}: {text}" for name, text in fields.items()),
            "    targets:",
            *lines,
            "",
        ]
    )


def http(url: str, **fields: object) -> str:
    """Return a target of type http as flow YAML; by default it is retried three times, after an hour each.

    `Sending` replaces a URL that is only a path, such as `/healthy/crm`, by the receiver's URL.
    """
    policy = "{policy: custom, max_retries: 3, initial_delay: 1h, multiplier: 1, max_delay: 1h}"
    fields = {"url": f'"{url}"', "allow_http": "true", "timeout": "1s", "retry": policy} | fields
    return "{type: http, " + ", ".join(f"{name}: {value}" for name, value in fields.items()) + "}"


@dataclass(frozen=True)
class Received:
    """The receiver of one test, without the requests of earlier tests."""

    server: Receiver
    before: int

    def url(self, path: str) -> str:
        """Return the URL of a path such as `/healthy/crm`."""
        return self.server.url(path)

    def requests(self) -> list[dict[str, Any]]:
        """Return what was received since the test began."""
        return self.server.requests(self.before)


@dataclass
class Sending:
    """An installation with one rule `orders` for every order, whose targets name paths of the receiver."""

    site: Any
    receiver: Received
    order: Callable[..., bytes]
    mode: str = "batch"
    _published: int = 0

    @property
    def runtime(self) -> Runtime:
        """The runtime."""
        runtime: Runtime = self.site.runtime
        return runtime

    def begin(self, *orders: int | bytes, settings: Mapping[str, object] | None = None, **targets: str) -> Runtime:
        """Write the rule with these targets, publish (see `publish`), and return the runtime, settings changed."""
        self.rules(**targets)
        self.publish(*orders)
        runtime: Runtime = self.site.reopen(**settings) if settings else self.site.runtime
        return runtime

    def routed(self, *orders: int | bytes, settings: Mapping[str, object] | None = None, **targets: str) -> Batch:
        """Do the same as `begin`, then listen, buffer and route, and return the batch, which is ready for push."""
        return routed(self.begin(*orders, settings=settings, **targets))

    def rules(self, **targets: str) -> None:
        """Replace the rule files by the rule with these targets."""
        self.write(rules(targets))

    def disable(self, **targets: str) -> None:
        """Replace the rule files by the rule with these targets, disabled."""
        self.write(rules(targets, enabled="false"))

    def remove(self) -> None:
        """Replace the rule files by others without the rule."""
        self.write(rules({"crm": "http://127.0.0.1:1/never"}, rule="other"))

    def write(self, text: str) -> None:
        """Replace the rule files by one with this content."""
        self.site.write_rules(text.replace('url: "/', f'url: "{self.receiver.url("/")}'))

    def publish(self, *orders: int | bytes) -> None:
        """Publish that many further orders for each number, and each message unchanged."""
        for each in orders:
            if isinstance(each, int):
                numbers = range(self._published + 1, self._published + each + 1)
                self._published += each
                self.site.publish(*(self.order(number) for number in numbers))
            else:
                self.site.publish(each)

    def deliver_batch(self, runner: str = RUNNER, *, idle_seconds: float = 0.0) -> str | None:
        """Move one batch through all stages, or in streaming mode what a streaming task delivers, and return its id.

        `idle_seconds` is how long the streaming task lasts at least after its last event, so that targets can retry.
        """
        return deliver_one_batch(self.runtime, runner, self.mode, idle_seconds)

    def deliver(self) -> None:
        """Deliver until nothing is available or due; in streaming mode a streaming task begins."""
        deliver_all(self.runtime, RUNNER, self.mode)

    def retry(self) -> str | None:
        """Move one retry batch through its stages and return its id, None if nothing is due."""
        return deliver_retries(self.runtime, RUNNER, Stop())

    def push(self, batch: Batch) -> None:
        """Push every chunk of a batch."""
        for chunk in self.runtime.ledger.chunks.list_for_batch(batch.batch_id):
            push(self.runtime, batch.batch_id, chunk.chunk_id)

    def settle(self, batch: Batch) -> None:
        """Settle a batch and make its retries pending, without the commit."""
        write_dead_letters(self.runtime, batch.batch_id)
        schedule_retries(self.runtime, batch.batch_id)

    def requests(self) -> list[dict[str, Any]]:
        """Return what the receiver received since the test began."""
        return self.receiver.requests()


def routed(runtime: Runtime) -> Batch:
    """Listen, buffer and route; return the batch, which is ready for push."""
    batch_id = listen(runtime, RUNNER)
    assert batch_id is not None, "events were published"
    buffer(runtime, batch_id)
    route(runtime, batch_id, InProcessRouter(runtime.store))
    return runtime.ledger.batches.get(batch_id)


def settled(runtime: Runtime, batch_id: str) -> dict[str, list[SettledDelivery]]:
    """Return the settlement's rows by target."""
    found: dict[str, list[SettledDelivery]] = {}
    for row in read_settled(runtime, batch_id):
        found.setdefault(row.target, []).append(row)
    return found


def segment_rows(runtime: Runtime, batch_id: str) -> list[dict[str, Any]]:
    """Return every recorded outcome row of a batch."""
    files = runtime.ledger.files.list_for_batch(batch_id, "outcome")
    return [row for file in files if file.path for row in read_table(runtime.store, file.path).to_pylist()]


def events_on_operations_bus(sending: Sending) -> list[dict[str, Any]]:
    """Return the events on the bus `eventbridge`, except those of schemas, which every new event type causes."""
    return [each for each in operational_events(sending.runtime) if not each["type"].startswith("schema.")]


def operational_events(runtime: Runtime) -> list[dict[str, Any]]:
    """Return the events on the bus `eventbridge` of a runtime."""
    source = runtime.open_source(OPERATIONS_BUS)
    (partition,) = source.partitions()
    bodies = [message.body for message in messages_of(source.read(partition, 0, source.end(partition)))]
    source.close()
    assert all(parse_event(body, max_bytes=1 << 20) for body in bodies)
    return [json.loads(body) for body in bodies]


def keeps(sent_at: list[datetime], rate: float) -> bool:
    """Return whether any t seconds had at most `rate * (t + 2) + 1` sends.

    Tokens of t + 1 seconds are leased in that time, and those of the previous second may be used in it.
    """
    times = sorted(sent_at)
    return all(
        end - start + 1 <= rate * ((times[end] - times[start]).total_seconds() + 2) + 1
        for start in range(len(times))
        for end in range(start, len(times))
    )
