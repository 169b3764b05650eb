"""A complete product in a folder, small enough to die at every call: one bus, four rules, six targets, a few events.

Stages run in forked processes (see `crash.py`), so only the folder is kept between two of them. `kinds.py` and
`runs.py` define what they run.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from demo.receiver import ADDRESSES
from faults.queue_file import QueueFile

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.routing.job import Router
from eventbridge.routing.task import InProcessRouter
from eventbridge.rules import Bus, RuleSet
from eventbridge.rules.load import load_rules
from eventbridge.rules.rule_set import RuleLines
from eventbridge.runtime.inbox import Inbox
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.sources.protocol import LogSource
from eventbridge.testing.poison import route_with_poison

if TYPE_CHECKING:
    from eventbridge.sources.embedded.server import DatabaseBus

RUNNER = "orders"
#: The runner to which the ordered rule moves, in worlds where it moves.
MOVED_RUNNER = "moves"
MOVED_RULE = "ordered-moves"
#: In addition to the valid events, two messages are not CloudEvents, and one event is published twice.
MALFORMED = 2
DUPLICATES = 1

BUDGETED_RULE = "expensive-bills"
#: The items whose moves the ordered target gets, in order. The keys of the first two share a shard.
ITEMS = ("cog", "pin", "cog", "rod", "cog")

_MOVED = "moved"

_RETRY = (
    "retry: {policy: custom, max_retries: 50, initial_delay: 1h, multiplier: 1, max_delay: 1h, maximum_event_age: 20d}"
)
_HTTP = "type: http, allow_http: true"
#: A target's connection has its URL, so that each run of a world has its own URLs (see `receiver.py`).
#: With a timeout of 3 s, the lease of a shard expires 16 s after it was taken, before the next run of a world begins.
_RULES = f"""
buses:
  orders:
    source: {{type: embedded, start_at: earliest, partitions: 2}}
rules:
  all-orders:
    bus: orders
    pattern: {{type: [order.placed]}}
    targets:
      healthy: {{{_HTTP}, connection: healthy, {_RETRY}}}
      late: {{{_HTTP}, connection: late, {_RETRY}}}
      lines: {{type: file, path: lines.jsonl, {_RETRY}}}
  refused-orders:
    bus: orders
    pattern: {{type: [order.placed]}}
    priority: low
    targets:
      bad: {{{_HTTP}, connection: bad, {_RETRY}}}
  ordered-moves:
    bus: orders
    pattern: {{type: [stock.moved]}}
    targets:
      strict: {{{_HTTP}, connection: strict, timeout: 3s, ordering_key: $.data.item, {_RETRY}}}
  {BUDGETED_RULE}:
    bus: orders
    pattern: {{type: [bill.sent]}}
    targets:
      bills: {{{_HTTP}, connection: bills, transform: {{form: JSONATA, value: '{{"id": id}}'}}, {_RETRY}}}
"""

#: The rules of streaming mode's worlds: with an ordered target, left to the close of a batch, but no budgeted rule.
_LANE_RULES = _RULES.partition(f"  {BUDGETED_RULE}:")[0]
#: The kinds whose worlds have these rules, and in which both modes of a runner alternate.
STREAMING_KINDS = ("streaming", "takeover", "backlog", "change", "committer")
#: The kind whose bus is a queue.
QUEUE_KIND = "queue"

_FIRST_SECOND = 10.0
"""Seconds that the first second of a world's clock takes."""


@dataclass
class Clock:
    """A clock that starts at the time when its world was made, plus `ahead`, so that a copied world does not age.

    Its first second is slow, so that a stage ends within it and makes the same calls on any machine; attempts are
    counted per second, and leases are renewed after a few seconds. Later seconds have their normal length, because a
    process may wait for a lease.
    """

    made_at: datetime
    ahead: timedelta
    _started: float = field(default_factory=time.monotonic)

    def __call__(self) -> datetime:
        passed = time.monotonic() - self._started
        seconds = passed / _FIRST_SECOND if passed < _FIRST_SECOND else passed - _FIRST_SECOND + 1
        return self.made_at + self.ahead + timedelta(seconds=seconds)


@dataclass(frozen=True)
class World(Runtime):
    """A runtime for a kind of work (see `kinds.py`) in its folder; `spark` is where it routes, "" for this process.

    The fork server reads the rule files once, because they are the same in every world and reading them takes a third
    of a recovery. A budgeted rule's transform is rendered in this process too.
    """

    folder: Path = Path()
    kind: str = ""
    spark: str = ""

    def rule_files(self) -> RuleSet:
        """Return the rules of this world, which depend on streaming mode and on whether its rule has moved."""
        if self.kind in STREAMING_KINDS:
            return lane_rule_set()
        return moved_rule_set() if (self.folder / _MOVED).exists() else rule_set()

    def open_source(self, bus: Bus) -> LogSource:
        """Open the world's bus; if that is a queue, open it through the inbox."""
        if self.kind == QUEUE_KIND:
            return Inbox(bus.name, {"events": _partition(self.folder, self.clock)}, self.ledger, self.store)
        return super().open_source(bus)

    @property
    def router(self) -> Router:
        """The router of this world."""
        if self.spark:
            from eventbridge.spark.route import ConnectRouter  # this import takes seconds, and only few worlds need it

            return ConnectRouter(self.spark)
        return InProcessRouter(self.store, route_with_poison)


@cache
def rule_set() -> RuleSet:
    """Return the rules of most worlds, as the product reads them."""
    return _read(_RULES)


@cache
def lane_rule_set() -> RuleSet:
    """Return the rules of the worlds in which a streaming task delivers."""
    return _read(_LANE_RULES)


def _read(rules: str) -> RuleSet:
    """Return rules with frozen lines, as from the rule cache; making the lines takes a fifteenth of a recovery."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "orders.yaml").write_text(rules)
        read = load_rules(Path(folder))
    return read.model_copy(update={"rules": RuleLines.from_rules(read.rules)})


@cache
def moved_rule_set() -> RuleSet:
    """Return the same rules, with a separate runner for the ordered rule."""
    rules = rule_set()
    moved = rules.rules[MOVED_RULE].model_copy(update={"runner": MOVED_RUNNER})
    return RuleSet(buses=rules.buses, rules=RuleLines.from_rules({**rules.rules, MOVED_RULE: moved}))


def move_rule(runtime: World) -> None:
    """Change the rule files, so that the ordered rule has another runner."""
    (runtime.folder / _MOVED).touch()


@dataclass(frozen=True)
class Size:
    """The size of a world: the numbers of valid orders or bills and of moves, and how many items each file holds.

    With one response per segment, the number of calls does not depend on the scheduling of threads.
    """

    valid: int = 2
    moves: int = 3
    range_events: int = 4
    segment_responses: int = 1
    chunk_deliveries: int = 5_000


@dataclass(frozen=True)
class Visit:
    """How a process opens a world: its targets' hosts, how many hours its clock is ahead, and its Spark."""

    urls: Mapping[str, str] = field(default_factory=dict)
    ahead_hours: float = 0.0
    spark: str = ""


def open_world(folder: Path, visit: Mapping[str, object]) -> World:
    """Open the runtime of a world; `visit` holds the fields of `Visit`."""
    given = Visit(**visit)  # type: ignore[arg-type]
    environ = {
        f"EVENTBRIDGE_CONN_{name.upper()}": json.dumps({"conn_type": "http", "extra": {"secret_url": url}})
        for name, url in given.urls.items()
    }
    made = json.loads((folder / "made.json").read_text())
    size = Size(**made["size"])
    settings = Settings.from_mapping(
        {
            "EVENTBRIDGE_HOME": str(folder / "home"),
            "EVENTBRIDGE_FILE_TARGET_FOLDERS": str(folder),
            "EVENTBRIDGE_LEDGER_URL": ledger_url(folder),
            "EVENTBRIDGE_RULES_FOLDER": str(folder / "rules"),
            "EVENTBRIDGE_BUFFER_RANGE_EVENTS": str(size.range_events),
            "EVENTBRIDGE_SEGMENT_RESPONSES": str(size.segment_responses),
            "EVENTBRIDGE_CHUNK_MAX_DELIVERIES": str(size.chunk_deliveries),
            "EVENTBRIDGE_BATCH_MAX_EVENTS": str(made["batch_events"]),
            "EVENTBRIDGE_DISK_MIN_FREE_SIZE": "0",
            "EVENTBRIDGE_STORE_MAX_SIZE": "1024GiB",  # so that the store's size is counted
            "EVENTBRIDGE_ALLOW_ADDRESSES": ADDRESSES,
        }
    )
    clock = Clock(datetime.fromisoformat(made["at"]), timedelta(hours=given.ahead_hours))
    opened = open_runtime(settings, connections_from_environment(environ), clock)
    of_runtime = {each.name: getattr(opened, each.name) for each in fields(Runtime)}
    return World(**of_runtime, folder=folder, kind=made["kind"], spark=given.spark)


def make_world(folder: Path, kind: str, events: str, size: Size, *, split: bool = False) -> None:
    """Write the rule file, make the ledger and publish the events: `orders` with moves in between, `placed` orders, or
    `bills`.

    Every trial has a copy of that ledger, because making one takes as long as a stage. If `split`, a batch takes all
    events but one.
    """
    (folder / "rules").mkdir(parents=True)
    (folder / "rules" / "orders.yaml").write_text(_LANE_RULES if kind in STREAMING_KINDS else _RULES)
    # Early in the day, so that a world whose clock is advanced by hours stays on the same day.
    made_at = datetime.now(UTC).replace(hour=1, minute=0, second=0, microsecond=0)
    records = [(json.dumps(each).encode(), key) for each, key in valid_events(events, size)]
    first = records[0][0]
    records += [(body, str(number)) for number, body in enumerate((first, b"{no json", b'{"id": "x"}'))]
    batch_events = len(records) - 1 if split else 50_000
    made = {"kind": kind, "size": vars(size), "at": made_at.isoformat(), "batch_events": batch_events}
    (folder / "made.json").write_text(json.dumps(made))
    open_world(folder, {}).close()
    if kind == QUEUE_KIND:
        _partition(folder, lambda: made_at).publish([body for body, _ in records])
        return
    with _bus(folder, made_at) as source:
        source.publish(records)


def _partition(folder: Path, clock: Callable[[], datetime]) -> QueueFile:
    return QueueFile(folder / "partition.sqlite", clock)


def _bus(folder: Path, made_at: datetime) -> EmbeddedBus | DatabaseBus:
    """Open the bus of a world, which is stored next to the ledger."""
    url = ledger_url(folder)
    if url:
        from eventbridge.sources.embedded.server import DatabaseBus

        return DatabaseBus(url, "orders", partitions=2, clock=lambda: made_at)
    return EmbeddedBus(folder / "home" / "bus", "orders", partitions=2, clock=lambda: made_at)


def ledger_url(folder: Path) -> str:
    """Return the URL of a world's ledger if it is on a server, else ""."""
    file = folder / "ledger-url"
    return file.read_text() if file.exists() else ""


def valid_events(events: str, size: Size) -> Iterator[tuple[dict[str, object], str]]:
    """Yield the valid events of a world, each with its partition key."""
    for number in range(size.valid):
        name, kind = ("bill", "bill.sent") if events == "bills" else ("order", "order.placed")
        yield _event(f"{name}-{number}", kind, number=number), str(number)
    if events == "orders":
        moved: Counter[str] = Counter()
        for number in range(size.moves):
            item = ITEMS[number % len(ITEMS)]
            yield _event(f"{item}-{moved[item]}", "stock.moved", item=item), item
            moved[item] += 1


def valid_events_of(runtime: World) -> list[str]:
    """Return the ids of the valid events of a world of orders."""
    made = json.loads((runtime.folder / "made.json").read_text())
    return [str(event["id"]) for event, _ in valid_events("orders", Size(**made["size"]))]


def _event(name: str, kind: str, **data: object) -> dict[str, object]:
    return {"specversion": "1.0", "id": name, "source": "/shop", "type": kind, "data": data}
