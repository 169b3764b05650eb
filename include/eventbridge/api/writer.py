"""Publishes to one bus from one thread, all that waits at a time: calls that come together share a transaction."""

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

#: No more calls are joined once they have so many events: those that wait behind would wait longer.
MOST_JOINED = 5_000

#: Body and key.
Record = tuple[bytes, str | None]
#: Where a record lies; an int: nowhere, as its topic takes no more than so many bytes of body and key.
Place = tuple[Partition, int] | int
Places = list[Place]


@dataclass(frozen=True)
class _Call:
    records: Sequence[Record]
    topic: str
    places: Future[Places] = field(default_factory=Future)


class BusWriter:
    """Publishes in order of arrival; a bus that fails is opened again for the next call. Threads may share it."""

    def __init__(self, name: str, open_publisher: Callable[[], Publisher]) -> None:
        self._open = open_publisher
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._closed = False
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"bus-{name}", daemon=True)
        self._thread.start()

    def publish(self, records: Sequence[Record], topic: str) -> Future[Places]:
        """Return what will say where records lie once all of them are durable, or raise that they may not be there.

        A record that is too large for its topic is left out, and keeps no other from being published.
        Raises BusError once it is closed: nobody would take the call.
        """
        call = _Call(records, topic)
        with self._closing:
            if self._closed:
                raise BusError("the bus was closed before it was given the events. Nothing was published")
            self._calls.put(call)
        return call.places

    def close(self) -> None:
        """Publish what waits, then let go of the bus."""
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
                    places = _publish(publisher, topic, [each for call in joined for each in call.records])
                except BaseException as error:  # whatever it was, nobody may wait for ever
                    _close(publisher)
                    publisher = None
                    for call in joined:
                        call.places.set_exception(error)
                else:
                    _response(joined, places)
        _close(publisher)

    def _waiting(self) -> tuple[list[_Call], bool]:
        """Return the calls that are next, and whether there may be more after them."""
        call = self._calls.get()
        calls: list[_Call] = []
        count = 0
        while call is not None:
            if call.places.set_running_or_notify_cancel():  # from here on nobody can cancel it
                calls.append(call)
                count += len(call.records)
            if count >= MOST_JOINED:
                return calls, True
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return calls, True
        return calls, False


def _publish(publisher: Publisher, topic: str, records: Sequence[Record]) -> Places:
    most = publisher.most_bytes(topic) if isinstance(publisher, SizeLimitedPublisher) else None
    fits = [most is None or _bytes_of(record) <= most for record in records]
    fitting = [record for record, fit in zip(records, fits, strict=True) if fit]
    places = iter(publisher.publish(fitting, topic=topic) if fitting else ())
    return [next(places) if fit else most or 0 for fit in fits]


def _bytes_of(record: Record) -> int:
    body, key = record
    return len(body) + (0 if key is None else len(key.encode("utf-8", "surrogatepass")))


def _by_topic(calls: Sequence[_Call]) -> dict[str, list[_Call]]:
    grouped: dict[str, list[_Call]] = defaultdict(list)
    for call in calls:
        grouped[call.topic].append(call)
    return grouped


def _response(calls: Sequence[_Call], places: Places) -> None:
    start = 0
    for call in calls:
        end = start + len(call.records)
        call.places.set_result(places[start:end])
        start = end


def _close(publisher: Publisher | None) -> None:
    if publisher is not None:
        try:
            publisher.close()
        except Exception:  # it failed already, and was told
            log.warning("a bus that failed cannot be closed", exc_info=True)
