"""Reads a bus for the watchers and sensors of a triggerer, in the thread of the bus.

A message is read and parsed once, whatever the number of watchers. A watcher that is behind the others, such as one
that was paused, catches up beside them.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

from eventbridge.airflow.airflow_api import CONNECTION_ID, AirflowAssetEvents
from eventbridge.airflow.asset_event_payload import AssetEvents
from eventbridge.airflow.connections import airflow_connection
from eventbridge.airflow.recorded_events import MARGIN, is_passed_over, recovered_position
from eventbridge.airflow.settings import airflow_settings
from eventbridge.airflow.state_events import ASSET_CHANGED
from eventbridge.airflow.subscriptions import Offsets, Poll, Subscription, subscriptions_of
from eventbridge.airflow.watch import rules_fingerprint
from eventbridge.errors import BusError, EventBridgeError, InfrastructureError, UserError
from eventbridge.matching.consistency import flatten
from eventbridge.matching.reference import matches_leaves
from eventbridge.model.partition import Partition, WatcherPosition
from eventbridge.pipeline.ingest.checking import reading
from eventbridge.rules import Bus
from eventbridge.rules.find import find_bus
from eventbridge.runtime.open import open_runtime
from eventbridge.sources.protocol import LogSource
from eventbridge.views.tail import TailedMessage, tailed_messages

log = logging.getLogger(__name__)

#: The largest number of messages that a poll reads from each position, and of patterns that it evaluates for them. Both
#: take a fifth of a second, during which the triggerer's event loop gets little time.
_READ_AT_ONCE = 1_000
_MATCHED_AT_ONCE = 20_000
#: The largest number of asset events of a watcher in a poll.
_MAX_OF_WATCHER = 50
#: The interval at which the positions of watchers without matching events are recorded. After a restart, a watcher
#: reads these events again, without a match.
_RECORD_SECONDS = 10.0
#: The interval at which changed rules are noticed.
_RULES_SECONDS = 2.0
#: The wait before a position is read again after that failed.
_BEGIN_SECONDS = 2.0
#: The time without requests to Airflow's API after one has failed.
_AWAY_SECONDS = 10.0
#: Asset events that are recorded within this time may be handled by one loop of Airflow's scheduler.
_MOMENT_SECONDS = 30.0
#: The time after the last asset event at which a watcher checks whether the scheduler has passed it over, and the
#: longest time between two such checks.
_WAKE_SECONDS = 5.0
_LONGEST_WAKE_SECONDS = 60.0
#: A triggerer that died after it had sent an asset event to Airflow cannot record it later than this.
_SETTLING = timedelta(seconds=5)


Result = TypeVar("Result")


class _NotYetError(EventBridgeError):
    """A watcher cannot begin yet."""


def queue_refusal(bus: Bus) -> str:
    """Return why a bus cannot be watched."""
    return (
        f"the bus {bus.name!r} is a queue ({bus.source.type}): reading a message takes it from the rules. "
        "Write a rule with a target of type airflow: it starts a DAG run or makes an asset event for each event"
    )


class BusReader:
    """One bus, open for its watchers and sensors. Only one thread may use it."""

    def __init__(self, bus: str) -> None:
        self._name = bus
        self._runtime = open_runtime(airflow_settings(), airflow_connection)
        self._bus: Bus | None = None
        self._source: LogSource | None = None
        self._rules_seen: tuple[float, Hashable] = (0.0, None)
        self._to_move: dict[str, Subscription] = {}
        self._recorded_at = time.monotonic()
        self._airflow_away_until = 0.0
        self._airflow_error = ""
        #: Whether the last poll has left messages unread.
        self.is_behind = False

    def close(self) -> None:
        """Record the positions, and close the bus and the ledger."""
        with suppress(EventBridgeError):
            self._record_idle()
            self._move()
        self._drop_source()
        self._runtime.close()

    def poll(self, room: int) -> Poll | None:
        """Return the next at most `room` asset events and claim them; None if there are none.

        Raises UserError and InfrastructureError if the bus cannot be read.
        """
        self._move()
        bus, source = self._open_source()
        try:
            for each in subscriptions_of(self._name):
                if each.offsets is None and each.in_flight == 0 and each.begin_at <= time.monotonic():
                    self._begin(each, source)
            ready = [each for each in subscriptions_of(self._name) if _is_ready(each)]
            if not ready or room <= 0:
                return None
            with _all_or_nothing(ready):
                return self._claimed(self._read(bus, source, ready, room))
        except BusError:
            self._drop_source()  # the next poll opens it again, with a new client
            raise

    def _read(
        self, bus: Bus, source: LogSource, ready: Sequence[Subscription], room: int
    ) -> dict[Subscription, Sequence[dict[str, Any]]]:
        """Read on from the positions of subscriptions, and return the payloads of those with matching events."""
        self.is_behind = False
        share = max(1, min(_MAX_OF_WATCHER, room // len(ready)))
        found = {each: AssetEvents(each, 1 if each.takes_one_at_a_time else share) for each in ready}
        ends = sorted(source.ends().items())
        limit = max(100, min(_READ_AT_ONCE, _MATCHED_AT_ONCE // len(ready)) // max(1, len(ends)))
        for partition, end in ends:
            self._read_partition(bus, source, partition, end, found, limit)
        if time.monotonic() - self._recorded_at >= _RECORD_SECONDS:
            self._record_idle(but=[each for each, events in found.items() if events.payloads()])
        self._wake(found)
        return {each: events.payloads() for each, events in found.items() if events.payloads()}

    def _wake(self, found: Mapping[Subscription, AssetEvents]) -> None:
        """Add an asset event without events for a watcher whose last asset event the scheduler has passed over."""
        now = time.monotonic()
        for each, events in found.items():
            if each.wake_at is None or each.wake_at > now or each.in_flight or events.payloads():
                continue
            each.wake_at = now + each.wake_pause  # also if the request fails
            each.wake_pause = min(_LONGEST_WAKE_SECONDS, 2 * each.wake_pause)
            try:
                results = self._ask_airflow(partial(_passed_over, each))
            except (_NotYetError, UserError, InfrastructureError) as error:
                _warn(each, f"{_title(each)} cannot check whether its last asset event has started a run: {error}")
                continue
            if None not in results:
                each.wake_at = None
            if True in results:
                log.info("%s makes an asset event without events, because Airflow passed over the last", _title(each))
                events.wake()
            return  # the check of the next watcher waits for the next poll

    def settle(self, polls: Iterable[tuple[Poll, bool]]) -> None:
        """Move the positions past polls whose asset events Airflow has recorded; False means that some may be lost."""
        for poll, is_recorded in polls:
            for each, settled in poll.after.items():
                each.in_flight -= 1
                each.is_broken = each.is_broken or not is_recorded or each not in poll.taken
                if not each.is_broken:
                    each.settled = settled
                    self._to_move[each.owner] = each
                    _note_recorded(each, poll.payloads[each])
                elif each.in_flight == 0:
                    each.offsets, each.is_broken = None, False
        self._move()

    def _open_source(self) -> tuple[Bus, LogSource]:
        now = time.monotonic()
        if self._bus is None or now - self._rules_seen[0] >= _RULES_SECONDS:
            fingerprint = rules_fingerprint(self._runtime)
            if self._bus is None or fingerprint != self._rules_seen[1]:
                bus = find_bus(self._runtime.rule_set(), self._name)
                if bus.source.is_queue:
                    raise UserError(queue_refusal(bus))
                if self._bus is not None and bus.source != self._bus.source:
                    self._drop_source()
                self._bus = bus
            self._rules_seen = (now, fingerprint)
        if self._source is None:
            self._source = self._runtime.open_source(self._bus)
        return self._bus, self._source

    def _drop_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            with suppress(BusError):
                source.close()

    def _begin(self, each: Subscription, source: LogSource) -> None:
        """Find the position at which a subscription begins. If that fails, it is tried again."""
        try:
            if each.assets:
                self._begin_watcher(each, source)
            else:
                assert isinstance(each.start_at, datetime)
                since = each.start_at
                each.offsets = {partition: source.offset_at(partition, since) for partition in source.partitions()}
        except BusError:
            raise
        except (_NotYetError, UserError, InfrastructureError) as error:
            each.begin_at = time.monotonic() + _BEGIN_SECONDS
            _warn(each, f"{_title(each)} waits: {error}")

    def _begin_watcher(self, each: Subscription, source: LogSource) -> None:
        for other in subscriptions_of(self._name):
            if other is each:
                break
            if other.name == each.name and set(other.assets) & set(each.assets):
                raise _NotYetError(
                    "another watcher of the asset reads the same bus. If the DAG has just changed, the other one ends "
                    "in a moment. Otherwise, give each of them a `name`"
                )
        begin = source.earliest if each.start_at == "earliest" else source.end
        identities = dict(source.identities())
        start = {partition: begin(partition) for partition in source.partitions()}
        owned = []
        now = self._runtime.ledger.now()
        for asset in each.assets:
            new = WatcherPosition(asset, each.bus, each.name, start, identities)
            found = self._runtime.ledger.asset_watchers.own(each.owner, new)
            owned.append(self._recovered(each, found, list(start)))
            if found.claimed_at is not None and now - found.claimed_at < MARGIN:
                _check_soon(each)
        offsets: Offsets = {}
        for position in owned:
            again = {topic for topic, log_id in position.identities.items() if identities.get(topic, log_id) != log_id}
            for partition, offset in position.offsets.items():
                if partition.topic not in again:  # the first message of a new log is its earliest
                    offsets[partition] = min(offset, offsets.get(partition, offset))
        self._report_deleted(each, source, offsets)
        each.identities = identities
        each.offsets, each.sent = offsets, max(position.sequence for position in owned)
        each.settled = (each.sent, dict(offsets))
        self._to_move[each.owner] = each
        self._move()
        if each.last_warning:
            log.info("%s continues", _title(each))
            each.last_warning = ""

    def _recovered(
        self, each: Subscription, owned: WatcherPosition, partitions: Sequence[Partition]
    ) -> WatcherPosition:
        """Return a position after the asset events that Airflow has recorded, although the ledger does not say so."""
        if owned.claimed == owned.sequence or owned.claimed_at is None:
            return owned
        if self._runtime.ledger.now() - owned.claimed_at < _SETTLING:
            raise _NotYetError("it has just run in another process, whose last asset events Airflow may be recording")
        found = self._ask_airflow(lambda airflow: recovered_position(airflow, owned, partitions))
        log.info(
            "%s: %d of %d asset events in doubt are recorded; it continues after them",
            *(_title(each), found.sequence - owned.sequence, owned.claimed - owned.sequence),
        )
        return found

    def _ask_airflow(self, ask: Callable[[AirflowAssetEvents], Result]) -> Result:
        """Return the result of requests to Airflow's API; after a failure, none is made for a while.

        Otherwise every watcher in turn would wait for the timeout of its requests, and hold up the others.
        """
        if time.monotonic() < self._airflow_away_until:
            raise _NotYetError(self._airflow_error)
        try:
            with AirflowAssetEvents(airflow_connection(CONNECTION_ID)) as airflow:
                return ask(airflow)
        except (UserError, InfrastructureError) as error:
            self._airflow_away_until = time.monotonic() + _AWAY_SECONDS
            self._airflow_error = str(error)
            raise

    def _report_deleted(self, each: Subscription, source: LogSource, offsets: Mapping[Partition, int]) -> None:
        for partition, offset in offsets.items():
            earliest = source.earliest(partition)
            if earliest > offset:
                log.warning(
                    "%s: the bus has deleted the offsets %d to %d of %s before the watcher read them",
                    *(_title(each), offset, earliest - 1, "-".join(str(part) for part in partition if part != "")),
                )

    def _read_partition(
        self,
        bus: Bus,
        source: LogSource,
        partition: Partition,
        end: int,
        found: Mapping[Subscription, AssetEvents],
        limit: int,
    ) -> None:
        """Read from each position that subscriptions have in a partition, up to the next of these positions."""
        groups: dict[int, list[Subscription]] = defaultdict(list)
        for each, events in found.items():
            assert each.offsets is not None
            if partition not in each.offsets:  # the partition is new
                each.offsets[partition] = source.earliest(partition)
            if each.offsets[partition] < end and not events.is_full:
                groups[each.offsets[partition]].append(each)
        for start, stop in pairwise([*sorted(groups), end]):
            self.is_behind = self.is_behind or start + limit < stop
            stop = min(stop, start + limit)
            with closing(reading(source, partition, start, stop)) as blocks:
                messages = (
                    message
                    for block in blocks
                    for message in tailed_messages(block, partition, bus.source, self._runtime.settings.event_max_size)
                )
                _hand_out(messages, partition, stop, {each: found[each] for each in groups[start]})

    def _claimed(self, payloads: dict[Subscription, Sequence[dict[str, Any]]]) -> Poll | None:
        """Record in the ledger that asset events will be sent to Airflow, and return them as a poll."""
        watchers = [each for each in payloads if each.assets]
        claims = {each.owner: _positions(each, each.settled[0], {}, each.sent) for each in watchers}
        replaced = self._runtime.ledger.asset_watchers.claim(claims) if claims else set()
        for each in watchers:
            if each.owner in replaced:
                del payloads[each]
                each.offsets, each.begin_at = None, time.monotonic() + _BEGIN_SECONDS
                _warn(each, f"{_title(each)} stops: another triggerer runs it too, and has taken its position over")
        if not payloads:
            return None
        for each in payloads:
            each.in_flight += 1
        return Poll(payloads, {each: (each.sent, dict(each.offsets or {})) for each in payloads})

    def _record_idle(self, but: Sequence[Subscription] = ()) -> None:
        """Record, with the next poll, the positions of watchers that have read on without a match."""
        self._recorded_at = time.monotonic()
        for each in subscriptions_of(self._name):
            is_idle = bool(each.assets) and each.offsets is not None and not each.in_flight and each not in but
            if is_idle and each.offsets != each.settled[1]:
                each.settled = (each.sent, dict(each.offsets or {}))
                self._to_move[each.owner] = each

    def _move(self) -> None:
        if self._to_move:
            moves = {
                each.owner: _positions(each, *each.settled, each.sent) for each in self._to_move.values() if each.assets
            }
            self._runtime.ledger.asset_watchers.move(moves)
            self._to_move.clear()


@contextmanager
def _all_or_nothing(subscriptions: Sequence[Subscription]) -> Iterator[None]:
    """Restore the positions of subscriptions if the block fails, so that the next poll reads the same events."""
    before = [(each, dict(each.offsets or {}), each.sent) for each in subscriptions]
    try:
        yield
    except BaseException:
        for each, offsets, sent in before:
            each.offsets, each.sent = offsets, sent
        raise


def _is_ready(each: Subscription) -> bool:
    if each.offsets is None or each.is_broken:
        return False
    return not (each.takes_one_at_a_time and each.in_flight)


def _hand_out(
    messages: Iterator[TailedMessage], partition: Partition, stop: int, found: Mapping[Subscription, AssetEvents]
) -> None:
    """Hand the messages of a range to the subscriptions that match, each until it has enough."""
    reading_on = set(found)
    for message in messages:
        leaves = None if message.event is None else flatten(message.event.document)
        for each in list(reading_on):
            is_match = leaves is not None and (each.pattern is None or matches_leaves(each.pattern, leaves))
            if is_match and not _is_own_change(each, message):
                found[each].add(message)
            assert each.offsets is not None
            each.offsets[partition] = message.offset + 1
            if found[each].is_full:
                reading_on.discard(each)
        if not reading_on:
            return
    for each in reading_on:
        assert each.offsets is not None
        each.offsets[partition] = stop


def _is_own_change(each: Subscription, message: TailedMessage) -> bool:
    """Return whether an event reports an asset event of the watcher itself, which would cause the next one."""
    assert message.event is not None
    if message.event.type != ASSET_CHANGED:
        return False
    data = message.event.document.get("data")
    asset = data.get("asset") if isinstance(data, dict) else None
    return isinstance(asset, dict) and asset.get("name") in each.assets


def _positions(each: Subscription, sequence: int, offsets: Offsets, claimed: int) -> list[WatcherPosition]:
    return [
        WatcherPosition(asset, each.bus, each.name, offsets, each.identities, sequence, claimed)
        for asset in each.assets
    ]


def _passed_over(each: Subscription, airflow: AirflowAssetEvents) -> list[bool | None]:
    return [is_passed_over(airflow, asset, each.bus, each.name) for asset in each.assets]


def _note_recorded(each: Subscription, payloads: Sequence[Mapping[str, Any]]) -> None:
    """Plan a check if the scheduler may have passed over an asset event, because several came within a moment."""
    if each.assets and any(payload["events"] for payload in payloads):
        now = time.monotonic()
        if len(payloads) > 1 or now - each.recorded_at < _MOMENT_SECONDS:
            _check_soon(each)
        each.recorded_at = now


def _check_soon(each: Subscription) -> None:
    each.wake_at, each.wake_pause = time.monotonic() + _WAKE_SECONDS, _WAKE_SECONDS


def _title(each: Subscription) -> str:
    if not each.assets:
        return f"a sensor of the bus {each.bus}"
    name = f" ({each.name})" if each.name else ""
    return f"the watcher of the asset {', '.join(each.assets)}{name} on the bus {each.bus}"


def _warn(each: Subscription, message: str) -> None:
    if each.last_warning != message:
        each.last_warning = message
        log.warning("%s", message)
