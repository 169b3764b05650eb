"""High-priority work for three times the slots beside low-priority work, for minutes: its share and wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from benchmarks.bench_site import BUS, Site, site
from benchmarks.compiled_receiver import CompiledReceiver
from benchmarks.fairness.executor import Executor

from eventbridge.airflow.pools import SHARED_POOLS
from eventbridge.delivery.push import push
from eventbridge.model.chunk import SLOW_LANE_POOL, SLOW_LANE_WEIGHT
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.retry.plan import plan_retries, settle_stale
from eventbridge.pipeline.route.stage import route
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.pipeline.settle.settlement import read_settled_as
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop

#: Push slots of all pools together, as many as `make demo` has; high offers three times what fills them.
SLOTS: Final = 8
TIMES: Final = 3
#: Deliveries of a push: at these figures it takes 2 s, whatever the machine.
_CHUNK, _DELAY_MS, _IN_FLIGHT = 40, 500, 10
_POLL_SECONDS = 0.1
_LANES: Final = ("high", "low")


@dataclass
class LaneFound:
    """What became of a lane's deliveries: settled in the time measured, and the longest any has waited by its end."""

    settled: int
    oldest_wait: float
    pending: int


@dataclass
class _Load:
    installation: Site
    executor: Executor
    stop: Stop
    published: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_LANES, 0))
    delivered: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_LANES, 0))
    failures: list[BaseException] = field(default_factory=list)


def measure_lanes(receiver: CompiledReceiver, seconds: float) -> dict[str, LaneFound]:
    """Keep both lanes busy for so long; high with three times the slots, low with as much as the slots take."""
    settings = {"chunk_max_deliveries": str(_CHUNK), "batch_max_events": str(SLOTS * TIMES * _CHUNK)}
    with site(large=False, **settings) as installation:
        targets = {
            lane: {
                "target": {
                    "type": "http",
                    "allow_http": True,
                    "url": receiver.url(f"/delay/{_DELAY_MS}/{lane}"),
                    "max_in_flight": _IN_FLIGHT,
                }
            }
            for lane in _LANES
        }
        more = {lane: {"priority": lane, "runner": lane} for lane in _LANES}
        installation.write_rules(targets, types={lane: [lane] for lane in _LANES}, more=more)
        load = _Load(installation, Executor(SLOTS, SHARED_POOLS), Stop())
        end = datetime.now(UTC) + timedelta(seconds=seconds)
        _run(load, seconds)
        with closing(installation.open()) as runtime:
            return {lane: _found(runtime, lane, load.delivered[lane], end) for lane in _LANES}


def _run(load: _Load, seconds: float) -> None:
    bodies: list[Callable[[], None]] = [partial(_deliver, load, lane) for lane in _LANES]
    bodies += [partial(_retry, load), partial(_publish, load)]
    with load.executor.running():
        threads = [threading.Thread(target=_guarded, args=(load, body)) for body in bodies]
        for thread in threads:
            thread.start()
        load.stop.wait(seconds)
        load.stop.set()
    for thread in threads:
        thread.join()
    for failure in load.failures:
        raise RuntimeError("a part of the benchmark failed") from failure


def _guarded(load: _Load, body: Callable[[], None]) -> None:
    try:
        body()
    except BaseException as error:
        load.failures.append(error)
        load.stop.set()


def _publish(load: _Load) -> None:
    """Keep so many deliveries of each lane open: published and not delivered."""
    open_ones = {"high": TIMES * SLOTS * _CHUNK, "low": SLOTS * _CHUNK}
    while not load.stop.is_set():
        for lane, wanted in open_ones.items():
            missing = wanted - (load.published[lane] - load.delivered[lane])
            if missing > 0:
                first = load.published[lane] + (_LANES.index(lane) + 1) * 100_000_000
                load.installation.publish(missing, 256, first, lane)
                load.published[lane] += missing
        load.stop.wait(_POLL_SECONDS)


def _deliver(load: _Load, lane: str) -> None:
    """Do what a DAG run of the lane's runner does, one after the other."""
    with closing(load.installation.open()) as runtime:
        router = InProcessRouter(runtime.store)
        while not load.stop.is_set():
            batch_id = listen(runtime, lane, load.executor.standing())
            if batch_id is None:
                load.stop.wait(_POLL_SECONDS)
                continue
            buffer(runtime, batch_id)
            route(runtime, batch_id, router, load.executor.standing())
            _push_and_settle(load, runtime, batch_id)


def _retry(load: _Load) -> None:
    """Do what runs of `eventbridge_retry_deliveries` do, one after the other."""
    with closing(load.installation.open()) as runtime:
        while not load.stop.wait(_POLL_SECONDS * 5):
            if runtime.ledger.due.has_any(runtime.ledger.now()):
                settle_stale(runtime)
                batch_id = plan_retries(runtime, pools=load.executor.standing()).batch_id
                if batch_id is not None:
                    _push_and_settle(load, runtime, batch_id)


def _push_and_settle(load: _Load, runtime: Runtime, batch_id: str) -> None:
    """Push a batch's chunks in slots; it is settled when all are done, or when its time is over, as in Airflow."""
    batch = runtime.ledger.batches.get(batch_id)
    futures = []
    for chunk in runtime.ledger.chunks.list_for_batch(batch_id):
        if chunk.map_index is not None:
            retried = batch.kind == "retry"
            pool, weight = (SLOW_LANE_POOL, SLOW_LANE_WEIGHT) if retried else (chunk.pool, chunk.weight)
            futures.append(load.executor.submit(pool, weight, partial(_push, load, batch_id, chunk.chunk_id)))
    for future in futures:
        while not load.stop.is_set() and not future.done():
            time.sleep(_POLL_SECONDS / 10)
    if not load.stop.is_set():
        write_dead_letters(runtime, batch_id)
        schedule_retries(runtime, batch_id)
        commit(runtime, batch_id)


def _push(load: _Load, batch_id: str, chunk_id: int) -> None:
    with ExitStack() as stack:
        runtime = stack.enter_context(closing(load.installation.open()))
        report = push(runtime, batch_id, chunk_id, load.stop)
    for target in report.targets:
        load.delivered[target.rule] += target.delivered


def _found(runtime: Runtime, lane: str, settled: int, end: datetime) -> LaneFound:
    waits = [(responded - published).total_seconds() for published, responded in _settled(runtime, lane)]
    open_since = _oldest_open(runtime, lane)
    if open_since is not None:
        waits.append((end - open_since).total_seconds())
    pending = sum(row.count for row in runtime.ledger.pending.counts() if row.rule == lane and row.state != "closed")
    return LaneFound(settled, max(waits, default=0.0), pending)


def _settled(runtime: Runtime, lane: str) -> Sequence[tuple[datetime, datetime]]:
    found = []
    for batch in runtime.ledger.batches.find(limit=None):
        for _, table in read_settled_as(runtime, batch.batch_id, ["delivered"], ["rule", "published_at", "settled_at"]):
            found += [
                (row["published_at"], row["settled_at"])
                for row in table.to_pylist()
                if row["rule"] == lane and row["settled_at"] is not None
            ]
    return found


def _oldest_open(runtime: Runtime, lane: str) -> datetime | None:
    """Return when the first message was published that the lane's runner has not committed, None if there is none."""
    (bus,) = [bus for bus in runtime.rule_set().buses.values() if bus.name == BUS]
    oldest: list[datetime] = []
    with closing(runtime.open_source(bus)) as source:
        for row in runtime.ledger.offsets.find(lane):
            end = source.end(row.partition)
            for block in source.read(row.partition, row.offset, end):
                texts = [bytes(body or b"") for body in block["body"].to_pylist()]
                times = block["published_at"].to_pylist()
                oldest += [at for at, text in zip(times, texts, strict=True) if f'"type": "{lane}"'.encode() in text][
                    :1
                ]
    return min(oldest, default=None)
