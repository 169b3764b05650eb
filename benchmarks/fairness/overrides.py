"""Overrides during a steady flow of events: the time from an override to its effect at the target."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from benchmarks.bench_site import RUNNER, Site, event, site
from benchmarks.compiled_receiver import CompiledReceiver

from eventbridge.control.overrides import operate
from eventbridge.delivery.segments import segments
from eventbridge.model.chunk import Chunk
from eventbridge.pipeline.deliver import deliver_batch, deliver_retries
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.store.parquet import read_table

#: Events a second, and the limit that the override sets: so different that the attempts show which one applies.
_RATE: Final = 20.0
_LIMIT: Final = 2
_TARGET: Final = "target"
#: How long an effect is looked for: more than the budget of a push, which goes on as it began.
_LAST_SECONDS: Final = 30.0

Attempts = Sequence[datetime]


@dataclass(frozen=True)
class TimeToEffect:
    """An override and the seconds until it took effect; nan if it had no effect within the time that was observed."""

    action: str
    seconds: float


@dataclass(frozen=True)
class _Observation:
    """What happened from a word to the end of the time that is looked at: when deliveries were sent, and chunks."""

    said: datetime
    sent: Attempts
    chunks: Sequence[Chunk]

    def after(self, at: datetime | None) -> float:
        return math.nan if at is None else max(0.0, (at - self.said).total_seconds())


def _stops(seen: _Observation) -> float:
    """Return when the last delivery was sent."""
    return seen.after(max(seen.sent, default=seen.said))


def _goes_on(seen: _Observation) -> float:
    """Return when the first delivery was sent."""
    return seen.after(min(seen.sent, default=None))


def _slows(seen: _Observation) -> float:
    """Return when the last delivery was sent that the rate would not have allowed."""
    return seen.after(max(_above_rate(seen), default=seen.said))


def _quickens(seen: _Observation) -> float:
    """Return when the first delivery was sent that the rate would not have allowed."""
    return seen.after(min(_above_rate(seen), default=None))


def _above_rate(seen: _Observation) -> list[datetime]:
    """Return when deliveries were sent beyond what the rate lets through in a second, and the tokens it had left."""
    most = 2 * _LIMIT + 1
    pairs = zip(seen.sent, seen.sent[most:], strict=False)
    return [at for before, at in pairs if (at - before).total_seconds() < 1.0]


def _weighs(weight: int) -> Callable[[_Observation], float]:
    """Return a look at when the first push of a weight started."""

    def look(seen: _Observation) -> float:
        started = [each.started_at for each in seen.chunks if each.weight == weight and each.started_at is not None]
        return seen.after(min(started, default=None))

    return look


#: What is set, one after the other: action, whether it names the target, value, how its effect is seen.
_WORDS: Final[tuple[tuple[str, bool, str, Callable[[_Observation], float]], ...]] = (
    ("pause rule", False, "", _stops),
    ("resume rule", False, "", _goes_on),
    ("pause target", True, "", _stops),
    ("resume target", True, "", _goes_on),
    ("disable rule", False, "", _stops),
    ("enable rule", False, "", _goes_on),
    ("set priority", False, "high", _weighs(750)),
    ("clear priority", False, "", _weighs(500)),
    ("set rate", True, f"{_LIMIT}/s", _slows),
    ("clear rate", True, "", _quickens),
)


def measure_overrides(receiver: CompiledReceiver, seconds: float) -> list[TimeToEffect]:
    """Set one override after the other, each `seconds` after the last, and return when each held."""
    with site(large=False) as installation:
        url = receiver.url("/ok/orders")
        installation.write_rules({"orders": {_TARGET: {"type": "http", "allow_http": True, "url": url}}})
        installation.publish(1, 256, 90_000_000)
        with _running(installation) as failures, closing(installation.open()) as runtime:
            time.sleep(seconds)
            found = []
            for action, of_target, value, look in _WORDS:
                operate(runtime, action, "orders", _TARGET if of_target else "", value, by="bench-fairness")
                said = datetime.now(UTC)
                end = time.monotonic() + _LAST_SECONDS
                time.sleep(seconds)
                while math.isnan(took := look(_seen(runtime, said))) and time.monotonic() < end and not failures:
                    time.sleep(0.5)
                found.append(TimeToEffect(action, took))
        for failure in failures:
            raise RuntimeError("a part of the benchmark failed") from failure
        return found


@contextmanager
def _running(installation: Site) -> Iterator[list[BaseException]]:
    """Publish, deliver and retry for the block; gives what failed."""
    stop, failures = Stop(), list[BaseException]()

    def guarded(body: Callable[[Site, Stop], None]) -> None:
        try:
            body(installation, stop)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in (_publish, _deliver, _retry)]
    for thread in threads:
        thread.start()
    try:
        yield failures
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _publish(installation: Site, stop: Stop) -> None:
    with installation.bus() as bus:
        number = 0
        while not stop.wait(1 / _RATE):
            bus.publish([(event(number := number + 1, 256), None)])


def _deliver(installation: Site, stop: Stop) -> None:
    with closing(installation.open()) as runtime:
        router = InProcessRouter(runtime.store)
        while not stop.is_set():
            if deliver_batch(runtime, RUNNER, router, stop) is None:
                stop.wait(0.05)


def _retry(installation: Site, stop: Stop) -> None:
    with closing(installation.open()) as runtime:
        while not stop.wait(0.1):
            if runtime.ledger.due.has_any(runtime.ledger.now()):
                deliver_retries(runtime, RUNNER, stop)


def _seen(runtime: Runtime, said: datetime) -> _Observation:
    sent: list[datetime] = []
    chunks: list[Chunk] = []
    for batch in runtime.ledger.batches.find(limit=400):
        chunks += [
            each
            for each in runtime.ledger.chunks.list_for_batch(batch.batch_id)
            if batch.kind == "normal" and each.started_at is not None and each.started_at >= said
        ]
        if batch.committed_at is not None and batch.committed_at < said:
            continue
        for file in segments(runtime, batch.batch_id):
            if file.path is not None:
                rows = read_table(runtime.store, file.path, ["sent", "started_at"]).to_pylist()
                sent += [row["started_at"] for row in rows if row["sent"] and row["started_at"] >= said]
    return _Observation(said, sorted(sent), chunks)
