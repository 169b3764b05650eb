"""A quiet topic, alone and beside a hot one of the same bus and runner: the latency of its events."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

from benchmarks.bench_site import RUNNER, Site, event, site
from benchmarks.compiled_receiver import CompiledReceiver

from eventbridge.pipeline.deliver import deliver_batch
from eventbridge.pipeline.settle.settlement import read_settled_as
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop

_TOPICS: Final = ("hot", "quiet")
_PUBLISH_SECONDS: Final = 0.05
_LAST_SECONDS: Final = 120.0


def measure_topic(
    receiver: CompiledReceiver, seconds: float, quiet_rate: float, hot_rate: float, *, burst: int
) -> list[float]:
    """Publish to both topics for so long and return the seconds from publish to response of the quiet one's events.

    `hot_rate` 0: the quiet topic is alone. `burst` events of the hot topic wait before all others.
    """
    with site(large=False) as installation:
        http = {"type": "http", "allow_http": True}
        targets = {topic: {"target": http | {"url": receiver.url(f"/ok/{topic}")}} for topic in _TOPICS}
        installation.write_rules(targets, types={topic: [topic] for topic in _TOPICS}, topics=_TOPICS)
        with installation.bus(_TOPICS) as bus:
            bus.publish([(event(0, 512, "quiet"), None)], "quiet")
            if hot_rate and burst:
                bus.publish([(event(10_000_000 + number, 512, "hot"), None) for number in range(burst)], "hot")
            with _running(installation) as failures:
                published = _publish(bus, seconds, {"quiet": quiet_rate, "hot": hot_rate})
                end = time.monotonic() + _LAST_SECONDS
                with closing(installation.open()) as runtime:
                    while len(took := list(_took(runtime))) <= published["quiet"] and not failures:
                        if time.monotonic() > end:
                            raise RuntimeError("the quiet topic's events are not delivered")
                        time.sleep(0.2)
            for failure in failures:
                raise RuntimeError("the runner failed") from failure
    return sorted(took)


def _publish(bus: Any, seconds: float, rates: dict[str, float]) -> dict[str, int]:
    """Publish at steady rates; return how many of each topic."""
    start, published = time.monotonic(), dict.fromkeys(rates, 0)
    while (passed := time.monotonic() - start) < seconds:
        for topic, rate in rates.items():
            due, first = math.ceil(passed * rate), published[topic]
            if due > first:
                number = 1 if topic == "quiet" else 50_000_000
                bus.publish([(event(number + n, 512, topic), None) for n in range(first, due)], topic)
                published[topic] = due
        time.sleep(_PUBLISH_SECONDS)
    return published


@contextmanager
def _running(installation: Site) -> Iterator[list[BaseException]]:
    """Run the runner for the block; gives what it failed with."""
    stop, failures = Stop(), list[BaseException]()

    def deliver() -> None:
        try:
            with closing(installation.open()) as runtime:
                router = InProcessRouter(runtime.store)
                while not stop.is_set():
                    if deliver_batch(runtime, RUNNER, router, Stop()) is None:
                        stop.wait(0.1)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=deliver)
    thread.start()
    try:
        yield failures
    finally:
        stop.set()
        thread.join()


def _took(runtime: Runtime) -> Iterator[float]:
    for batch in runtime.ledger.batches.find(limit=None):
        for _, table in read_settled_as(runtime, batch.batch_id, ["delivered"], ["rule", "published_at", "settled_at"]):
            for row in table.to_pylist():
                if row["rule"] == "quiet":
                    yield (row["settled_at"] - row["published_at"]).total_seconds()


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan
