"""Publishes to one bus from one thread; queued calls are published together, in one transaction."""

from __future__ import annotations

import logging
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from eventbridge.errors import BusError
from eventbridge.model.partition import Partition
from eventbridge.sources.protocol import Publisher, SizeLimitedPublisher

log = logging.getLogger(__name__)

#: No more calls are joined once they have this many events: later calls would wait longer.
MOST_JOINED = 5_000

#: Body and key.
Record = tuple[bytes, str | None]
#: The position of a record; an int if its topic takes at most this many bytes of body and key.
Position = tuple[Partition, int] | int
Positions = list[Position]


@dataclass(frozen=True)
class _Call:
    records: Sequence[Record]
    topic: str
    positions: Future[Positions] = field(default_factory=Future)


class BusWriter:
    """Publishes calls in order of arrival, and reopens a bus that failed for the next call. It is thread-safe."""

    def __init__(self, name: str, open_publisher: Callable[[], Publisher]) -> None:
        self._open = open_publisher
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._closed = False
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"bus-{name}", daemon=True)
        self._thread.start()

    def publish(self, records: Sequence[Record], topic: str) -> Future[Positions]:
        """Return a future of the records' positions; it is done once all of them are durable, or fails with BusError.

        A record that is too large for its topic is left out; the others are published.
        Raises BusError once the writer is closed.
        """
        call = _Call(records, topic)
        with self._closing:
            if self._closed:
                raise BusError("the bus was closed before the events were published. Nothing was published")
            self._calls.put(call)
        return call.positions

    def close(self) -> None:
        """Publish the queued calls, then close the bus."""
        with self._closing:
            self._closed = True
            self._calls.put(None)
        self._thread.join()

    def _run(self) -> None:
        publisher: Publisher | None = None
        going = True
        while going:
            calls, going = self._waiting()
            for topic, joined in _by_topic(calls).items():
                try:
                    publisher = publisher or self._open()
                    positions = _publish(publisher, topic, [each for call in joined for each in call.records])
                except BaseException as error:  # whatever it is, every caller needs a result
                    _close(publisher)
                    publisher = None
                    for call in joined:
                        call.positions.set_exception(error)
                else:
                    _set_results(joined, positions)
        _close(publisher)

    def _waiting(self) -> tuple[list[_Call], bool]:
        """Return the next calls, and whether more may follow."""
        call = self._calls.get()
        calls: list[_Call] = []
        count = 0
        while call is not None:
            if call.positions.set_running_or_notify_cancel():  # from here on it cannot be cancelled
                calls.append(call)
                count += len(call.records)
            if count >= MOST_JOINED:
                return calls, True
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return calls, True
        return calls, False


def _publish(publisher: Publisher, topic: str, records: Sequence[Record]) -> Positions:
    most = publisher.most_bytes(topic) if isinstance(publisher, SizeLimitedPublisher) else None
    fits = [most is None or _bytes_of(record) <= most for record in records]
    fitting = [record for record, fit in zip(records, fits, strict=True) if fit]
    positions = iter(publisher.publish(fitting, topic=topic) if fitting else ())
    return [next(positions) if fit else most or 0 for fit in fits]


def _bytes_of(record: Record) -> int:
    body, key = record
    return len(body) + (0 if key is None else len(key.encode("utf-8", "surrogatepass")))


def _by_topic(calls: Sequence[_Call]) -> dict[str, list[_Call]]:
    grouped: dict[str, list[_Call]] = defaultdict(list)
    for call in calls:
        grouped[call.topic].append(call)
    return grouped


def _set_results(calls: Sequence[_Call], positions: Positions) -> None:
    start = 0
    for call in calls:
        end = start + len(call.records)
        call.positions.set_result(positions[start:end])
        start = end


def _close(publisher: Publisher | None) -> None:
    if publisher is not None:
        try:
            publisher.close()
        except Exception:  # its first failure was reported to the callers
            log.warning("cannot close a bus that failed", exc_info=True)
