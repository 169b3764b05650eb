"""A whole product in a folder, small enough to die at every call: one bus, two rules, four targets, a few events.

Stages run in forked processes (see `crash.py`), so nothing here may be kept between two of them but the folder.
`KINDS` holds the stages of each kind of batch; a kind that is added there is killed like the others.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from faults.look import look

from eventbridge.connection import connections_from_environment
from eventbridge.ledger.records import BatchKind
from eventbridge.rule import RuleSet, load_rules
from eventbridge.settings import Settings
from eventbridge.sources.embedded import EmbeddedBus
from eventbridge.stages import push as push_stage
from eventbridge.stages.audit import audit
from eventbridge.stages.buffer import buffer
from eventbridge.stages.commit import commit
from eventbridge.stages.dead_letters import write_dead_letters
from eventbridge.stages.deliver import deliver_until_idle
from eventbridge.stages.deliver_redrive import deliver_redrive
from eventbridge.stages.listen import listen
from eventbridge.stages.push import push
from eventbridge.stages.redrive import begin_redrive
from eventbridge.stages.repair import repair_batch
from eventbridge.stages.retries import plan_retries
from eventbridge.stages.route import route
from eventbridge.stages.route_in_process import InProcessRouter
from eventbridge.stages.schedule_retries import schedule_retries
from eventbridge.stages.selection import Selection
from eventbridge.stages.workplace import Workplace
from eventbridge.testing.receiver import ADDRESSES

RUNNER = "orders"
#: Beside the valid events two come that are no CloudEvents, and one comes twice.
MALFORMED = 2
DUPLICATES = 1

#: Recovery happens in the eyes of the product two hours later, and again two hours later: every retry is due by then.
LATER = timedelta(hours=2)

_RETRY = "retry: {policy: own, attempts: 50, initial: 1h, multiplier: 1, maximum: 1h, maximum_event_age: 20d}"
#: Where a target sends to says its connection, so that each run of a world has URLs of its own (see `receiver.py`).
_RULES = f"""
buses:
  orders:
    source: {{type: embedded, start_at: earliest, queues: 2}}
rules:
  all-orders:
    bus: orders
    pattern: {{type: [order.placed]}}
    targets:
      healthy: {{type: http, connection: healthy, allow_http: true, {_RETRY}}}
      late: {{type: http, connection: late, allow_http: true, {_RETRY}}}
      lines: {{type: file, path: lines.jsonl, {_RETRY}}}
  refused-orders:
    bus: orders
    pattern: {{type: [order.placed]}}
    priority: low
    targets:
      bad: {{type: http, connection: bad, allow_http: true, {_RETRY}}}
"""

Tell = Callable[[list[Any]], None]
Body = Callable[[Workplace, BatchKind], None]


@dataclass
class Clock:
    """A clock that started at the time its world was made, put forward by `ahead`: a copy of it never grows old."""

    made_at: datetime
    ahead: timedelta
    _started: float = field(default_factory=time.monotonic)

    def __call__(self) -> datetime:
        return self.made_at + self.ahead + timedelta(seconds=time.monotonic() - self._started)


class RulesOnce(Workplace):
    """A workplace whose rule files are read once by the fork server: they are the same in every world.

    Reading them is a third of what a recovery costs.
    """

    def rule_set(self) -> RuleSet:
        """Return the rules of every world."""
        return rule_set()


@cache
def rule_set() -> RuleSet:
    """Return the rules of every world, as the product reads them."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "orders.yaml").write_text(_RULES)
        return load_rules(Path(folder))


@dataclass(frozen=True)
class Kind:
    """The stages of one kind of batch, in order, and what must have happened before the first of them.

    `late`: what the target of that name does while the stages run: `refused` (nobody listens) or `half` (one event is
    refused, the others are taken); it always recovers in the end.
    """

    stages: Mapping[str, Body]
    before: tuple[str, ...] = ()
    ahead: timedelta = timedelta(0)
    late: str = "refused"


def _listen(work: Workplace, _: BatchKind) -> None:
    listen(work, RUNNER)


def _buffer(work: Workplace, kind: BatchKind) -> None:
    buffer(work, batch_of(work, kind))


def _route(work: Workplace, kind: BatchKind) -> None:
    route(work, batch_of(work, kind), InProcessRouter(work.store))


def _plan_retries(work: Workplace, _: BatchKind) -> None:
    plan_retries(work, RUNNER)


def _push(work: Workplace, kind: BatchKind) -> None:
    batch_id = batch_of(work, kind)
    for chunk in work.ledger.chunks(batch_id):
        push(work, batch_id, chunk.chunk_id)


def _write_dead_letters(work: Workplace, kind: BatchKind) -> None:
    write_dead_letters(work, batch_of(work, kind))


def _schedule_retries(work: Workplace, kind: BatchKind) -> None:
    schedule_retries(work, batch_of(work, kind))


def _commit(work: Workplace, kind: BatchKind) -> None:
    commit(work, batch_of(work, kind))


_SETTLING: Mapping[str, Body] = {
    "push": _push,
    "write_dead_letters": _write_dead_letters,
    "schedule_retries": _schedule_retries,
    "commit": _commit,
}

KINDS: dict[BatchKind, Kind] = {
    "normal": Kind({"listen": _listen, "buffer": _buffer, "route": _route, **_SETTLING}),
    "retry": Kind({"plan": _plan_retries, **_SETTLING}, before=("normal",), ahead=LATER, late="half"),
}


def _redrive(work: Workplace) -> None:
    """Begin a redrive of everything, or go on with it, and take its batches through all their stages."""
    wish = begin_redrive(work, Selection(), "redrive", rate=None, retransform=False, again=False)
    deliver_redrive(work, wish.redrive_id, InProcessRouter(work.store))


def _damage(work: Workplace) -> None:
    """Cut a delivery file of the newest batch short, and remove its settlement and a segment with answers."""
    files = {
        kind: next(file.path for file in work.ledger.files(batch_of(work, "normal"), kind) if file.path)
        for kind in ("delivery", "outcome", "settlement")
    }
    whole = work.store.get(files["delivery"])
    for path in files.values():
        work.store.delete(path)
    work.store.put(files["delivery"], whole[: len(whole) // 2])


def _repair(work: Workplace) -> None:
    repair_batch(work, batch_of(work, "normal"), InProcessRouter(work.store), dry_run=False)


_ALONE: Mapping[str, Callable[[Workplace], None]] = {"damage": _damage, "redrive": _redrive, "repair": _repair}


def batch_of(work: Workplace, kind: BatchKind) -> str:
    """Return the batch of a kind that was planned last, as an Airflow run would hand it from stage to stage."""
    return next(batch.batch_id for batch in work.ledger.batches(limit=None) if batch.kind == kind)


def run(work: Workplace, stage: str, tell: Tell, begin: Callable[[], None]) -> None:
    """Run `<kind>.<stage>`, all stages of a kind (`<kind>.all`), what is `_ALONE`, or the recovery of what happened.

    `begin` is called when all is ready: from then on calls are counted. A recovery first tells what it found
    (`look`), moves the clock on as `recovery:<hours>,<hours>` says, and in the end tells the books.
    """
    # what a push does every second, a slow machine does more often: the number of calls must not depend on that
    push_stage._TELL_SECONDS = 3600.0
    name, _, detail = stage.partition(":")
    if name == "recovery":
        tell(["look", look(work)])
        begin()
        _recover(work, [float(hours) for hours in detail.split(",")])
        tell(["books", _books(work)])
        return
    kind, _, which = name.partition(".")
    begin()
    if kind in _ALONE:
        _ALONE[kind](work)
        return
    stages = KINDS[kind].stages  # type: ignore[index]
    for body in stages.values() if which == "all" else [stages[which]]:
        body(work, kind)  # type: ignore[arg-type]


def _recover(work: Workplace, hours: list[float]) -> None:
    clock = work.clock
    assert isinstance(clock, Clock)
    began = clock.ahead
    for each in hours:
        clock.ahead = began + timedelta(hours=each)
        if deliver_until_idle(work, RUNNER, InProcessRouter(work.store), wait_seconds=0.0).next_due_at is None:
            return


def _books(work: Workplace) -> dict[str, Any]:
    books = audit(work)
    return {
        "differences": books.differences,
        "open": books.open_batches,
        "events": books.events,
        "deliveries": books.deliveries,
    }


@dataclass(frozen=True)
class Size:
    """How large a world is: its valid events, and after how many messages and answers a file is written.

    With one answer a segment the number of calls does not depend on how threads take turns.
    """

    valid: int = 2
    range_events: int = 2
    segment_answers: int = 1
    chunk_deliveries: int = 5_000

    @property
    def events(self) -> int:
        """Messages on the bus."""
        return self.valid + MALFORMED + DUPLICATES


@dataclass(frozen=True)
class Visit:
    """How a process opens a world: whom its targets reach, and how far its clock is ahead, in hours."""

    urls: Mapping[str, str] = field(default_factory=dict)
    ahead_hours: float = 0.0


def open_world(folder: Path, visit: Mapping[str, Any]) -> Workplace:
    """Open the workplace of a world; `visit` holds the fields of `Visit`."""
    given = Visit(**visit)
    environ = {
        f"EVENTBRIDGE_CONN_{name.upper()}": json.dumps({"conn_type": "http", "extra": {"secret_url": url}})
        for name, url in given.urls.items()
    }
    made = json.loads((folder / "made.json").read_text())
    size = Size(**made["size"])
    settings = Settings.from_mapping(
        {
            "EVENTBRIDGE_HOME": str(folder / "home"),
            "EVENTBRIDGE_RULES_FOLDER": str(folder / "rules"),
            "EVENTBRIDGE_BUFFER_RANGE_EVENTS": str(size.range_events),
            "EVENTBRIDGE_SEGMENT_ANSWERS": str(size.segment_answers),
            "EVENTBRIDGE_CHUNK_MAX_DELIVERIES": str(size.chunk_deliveries),
            "EVENTBRIDGE_DISK_FREE_MIN_BYTES": "0",
            "EVENTBRIDGE_ALLOW_ADDRESSES": ADDRESSES,
        }
    )
    clock = Clock(datetime.fromisoformat(made["at"]), timedelta(hours=given.ahead_hours))
    return RulesOnce.open(settings, connections_from_environment(environ), clock)


def make_world(folder: Path, size: Size) -> None:
    """Write the rule file and publish the events."""
    (folder / "rules").mkdir(parents=True)
    (folder / "rules" / "orders.yaml").write_text(_RULES)
    (folder / "made.json").write_text(json.dumps({"size": vars(size), "at": datetime.now(UTC).isoformat()}))
    good = [json.dumps(event(number)).encode() for number in range(size.valid)]
    bus = folder / "home" / "bus"
    with EmbeddedBus(bus, "orders", queues=2, clock=lambda: datetime.now(UTC)) as source:
        records = [*good, good[0], b"{no json", b'{"id": "x"}']
        source.publish([(body, str(index)) for index, body in enumerate(records)])


def event(number: int) -> dict[str, object]:
    """Return the n-th valid event."""
    return {
        "specversion": "1.0",
        "id": f"order-{number}",
        "source": "/shop",
        "type": "order.placed",
        "data": {"number": number},
    }
