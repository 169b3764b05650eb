"""An installation in a temporary folder, its events, and stages in processes, for the delivery benchmarks."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import resource
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pandas  # noqa: F401  # pyarrow imports it at its first table; tasks of Airflow are forked with it
from demo.receiver import ADDRESSES

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.delivery.push import push
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.ingest import batch_size
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.route.stage import route
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.sources.embedded.bus import EmbeddedBus

RUNNER = "bench"
BUS = "bench"

#: HMAC-SHA256 signatures with one key of 32 bytes.
_SIGNING = {"any_host": True, "signing_secret": f"whsec_{'a' * 43}="}
SIGNED = {"EVENTBRIDGE_CONN_SIGNED": json.dumps({"conn_type": "http", "extra": _SIGNING})}

#: Settings for large batches, with enough time for all of their chunks.
_SETTINGS = {
    "EVENTBRIDGE_BATCH_MAX_EVENTS": "1000000",
    "EVENTBRIDGE_BATCH_MAX_SIZE": str(4 << 30),
    "EVENTBRIDGE_BATCH_MAX_CHUNKS": "1024",
    "EVENTBRIDGE_BATCH_TIMEOUT": "3600",
    "EVENTBRIDGE_PREPARE_TIMEOUT": "3600",
}


#: The stages after a batch's pushes.
_SETTLING: dict[str, Callable[[Runtime, str], Any]] = {
    "write_dead_letters": write_dead_letters,
    "schedule_retries": schedule_retries,
    "commit": commit,
}


@dataclass(frozen=True)
class Site:
    """An installation below `folder`; each process opens it again."""

    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)

    def open(self) -> Runtime:
        """Open its runtime; the caller closes it."""
        environ = self.environ()
        return open_runtime(Settings.from_mapping(environ), connections_from_environment(environ))

    def environ(self) -> dict[str, str]:
        """Return the variables that name it to a process of its own."""
        own = {
            "EVENTBRIDGE_HOME": str(self.folder / "home"),
            "EVENTBRIDGE_FILE_TARGET_FOLDERS": str(self.folder),
            "EVENTBRIDGE_RULES_FOLDER": str(self.folder / "rules"),
        }
        return {**SIGNED, "EVENTBRIDGE_ALLOW_ADDRESSES": ADDRESSES, **self.settings, **own}

    def write_rules(
        self,
        rules: Mapping[str, Mapping[str, Any]],
        types: Mapping[str, list[str]] | None = None,
        more: Mapping[str, Mapping[str, Any]] | None = None,
        topics: Sequence[str] = ("events",),
        source: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the rule file: per rule its targets, and `more` fields of it.

        A rule matches events of the type `bench`, or of its `types`. The bus is embedded, or has another `source`.
        """
        folder = self.folder / "rules"
        folder.mkdir(parents=True, exist_ok=True)
        wanted = types or {}
        found = {
            name: {"bus": BUS, "pattern": {"type": wanted.get(name, ["bench"])}, "targets": targets}
            | (more or {}).get(name, {})
            for name, targets in rules.items()
        }
        embedded = {"type": "embedded", "start_at": "earliest", "partitions": 4, "topics": list(topics)}
        bus = {"source": dict(source or embedded)}
        text = json.dumps({"buses": {BUS: bus}, "rules": found})  # JSON is YAML
        (folder / "bench.yaml").write_text(text)

    @contextmanager
    def bus(self, topics: Sequence[str] = ("events",)) -> Iterator[EmbeddedBus]:
        """Open its bus."""
        folder = self.folder / "home" / "bus"
        with EmbeddedBus(folder, BUS, topics=topics, partitions=4, clock=lambda: datetime.now(UTC)) as bus:
            yield bus

    def publish(self, count: int, size: int, first: int = 0, kind: str | Callable[[int], str] = "bench") -> None:
        """Publish so many events of `size` bytes, of one type or of the type that `kind` gives each number."""
        kind_of = kind if callable(kind) else lambda _number: kind
        with self.bus() as bus:
            for start in range(first, first + count, 5_000):
                numbers = range(start, min(start + 5_000, first + count))
                bus.publish([(event(number, size, kind_of(number)), None) for number in numbers])

    def buffered(self) -> str:
        """Listen and buffer what was published; return the batch."""
        with closing(self.open()) as work:
            batch_id = listen(work, RUNNER)
            assert batch_id is not None, "events were published"
            buffer(work, batch_id)
            return batch_id

    def routed(self) -> tuple[str, list[int]]:
        """Listen, buffer and route what was published; return the batch and the chunks to push."""
        with closing(self.open()) as work:
            batch_id = listen(work, RUNNER)
            assert batch_id is not None, "events were published"
            buffer(work, batch_id)
            return batch_id, route(work, batch_id, InProcessRouter(work.store))

    def routed_once(self, rules: int) -> str:
        """Route one event by so many rules, each with a file target, and return its batch; nothing is pushed."""
        target = {"type": "file", "path": "/nowhere"}
        self.write_rules({f"rule-{number}": {"target": target} for number in range(rules)})
        self.publish(1, 256)
        return measured(self.routed).result[0]


def event(number: int, size: int, kind: str = "bench") -> bytes:
    """Return the n-th event, of `size` bytes where that is possible."""
    head = {"specversion": "1.0", "id": f"e{number:09d}", "source": "/bench", "type": kind}
    short = json.dumps(head | {"data": {"text": ""}}).encode()
    return json.dumps(head | {"data": {"text": "x" * max(0, size - len(short))}}).encode()


@contextmanager
def site(*, large: bool = True, **settings: str) -> Iterator[Site]:
    """Make an installation for the block, below the working directory, so that a real disk is measured.

    `large`: batches are as large as what was published, and have an hour; else the settings are the product's own.
    """
    folder = Path(tempfile.mkdtemp(dir=Path.cwd(), prefix=".bench-"))
    first = batch_size.FIRST_EVENTS
    try:
        if large:
            batch_size.FIRST_EVENTS = int(_SETTINGS["EVENTBRIDGE_BATCH_MAX_EVENTS"])  # no earlier batch sets the pace
        named = {f"EVENTBRIDGE_{name.upper()}": value for name, value in settings.items()}
        yield Site(folder, (_SETTINGS if large else {}) | named)
    finally:
        batch_size.FIRST_EVENTS = first
        shutil.rmtree(folder)


@dataclass(frozen=True)
class Cost:
    """What a process cost: seconds of wall clock, CPU seconds of the process, its peak memory in MiB."""

    wall: float
    cpu: float
    peak_mib: float
    result: Any = None


def measured(work: Callable[[], Any], core: int | None = None) -> Cost:
    """Run `work` in a forked process of its own, on one core if it says so, and return what it cost."""
    return _ended(*_begun(work, core))


def measured_together(works: Iterable[Callable[[], Any]], at_once: int, limit: float) -> list[Cost]:
    """Run each of `works` in a forked process of its own, `at_once` at a time, and return what each cost.

    One that is not done after `limit` seconds is ended; its result is None.
    """
    waiting = deque(works)
    running: dict[Connection, BaseProcess] = {}
    costs: list[Cost] = []
    while waiting or running:
        while waiting and len(running) < at_once:
            process, responses = _begun(waiting.popleft(), None, limit)
            running[responses] = process
        costs += [_ended(running.pop(each), each) for each in wait(list(running)) if isinstance(each, Connection)]
    return costs


def _begun(work: Callable[[], Any], core: int | None, limit: float | None = None) -> tuple[BaseProcess, Connection]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def child() -> None:
        if core is not None:
            os.sched_setaffinity(0, {core})
        wall, cpu = time.perf_counter(), time.process_time()

        def tell(result: Any) -> None:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            theirs.send(Cost(time.perf_counter() - wall, time.process_time() - cpu, peak, result))

        def give_up() -> None:
            tell(None)
            os._exit(1)

        timer = threading.Timer(limit, give_up) if limit is not None else None
        if timer is not None:
            timer.daemon = True
            timer.start()
        result = work()
        if timer is not None:
            timer.cancel()
        tell(result)

    process = context.Process(target=child)
    gc.freeze()  # as the task of a push does: no collection looks through what the parent has
    process.start()
    gc.unfreeze()
    theirs.close()
    return process, ours


def _ended(process: BaseProcess, responses: Connection) -> Cost:
    try:
        cost: Cost = responses.recv()
    except EOFError:
        raise RuntimeError("the measured process failed; its error is above") from None
    process.join()
    return cost


def push_all(site: Site, batch_id: str, chunk_ids: list[int]) -> int:
    """Push chunks one after the other, as one push process would, and return how many deliveries were delivered."""
    with closing(site.open()) as work:
        return push_of(work, batch_id, chunk_ids)


def push_of(work: Runtime, batch_id: str, chunk_ids: list[int]) -> int:
    """Push chunks one after the other in a runtime that is open."""
    return sum(push(work, batch_id, chunk_id, Stop()).delivered for chunk_id in chunk_ids)


def settle_before_commit(site: Site, batch_id: str) -> None:
    """Settle a batch and schedule its retries."""
    for stage in (write_dead_letters, schedule_retries):
        measured(partial(_stage, site, stage, batch_id))


def settled(site: Site, batch_id: str) -> dict[str, Cost]:
    """Settle, schedule retries and commit a batch, each stage in a process of its own, and return what each cost."""
    costs = {name: measured(partial(_stage, site, stage, batch_id)) for name, stage in _SETTLING.items()}
    if not costs["commit"].result:
        raise RuntimeError(f"batch {batch_id} is not committed")
    return costs


def _stage(site: Site, stage: Callable[[Runtime, str], Any], batch_id: str) -> Any:
    with closing(site.open()) as work:
        return stage(work, batch_id)


def cores() -> tuple[int | None, int | None]:
    """Return a core for what is measured and one for the receiver; None where there is only one."""
    found = sorted(os.sched_getaffinity(0))
    return (found[0], found[1]) if len(found) > 1 else (None, None)
