"""What every log source must do: each test runs against the embedded bus, the fake, and real brokers."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from services.kafka import Kafka, drop_before, make_topics
from services.postgresql import Postgresql
from services.rocketmq import BROKER, RocketMQ, begin_file, drop_old_files
from services.rocketmq import make_topics as make_rocketmq_topics

from eventbridge import fault_points
from eventbridge.errors import BusError, OffsetGapError
from eventbridge.model.queue import Queue
from eventbridge.rocketmq.remoting.settings import ClientSettings
from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.sources.embedded.database_bus import DatabaseBus
from eventbridge.sources.embedded.places import queue_of_key
from eventbridge.sources.kafka.log import KafkaLog
from eventbridge.sources.messages import MESSAGES
from eventbridge.sources.protocol import LogSource, Publisher
from eventbridge.sources.rocketmq.log import RocketmqLog
from eventbridge.testing.messages import messages_of
from eventbridge.testing.sources import InMemoryLog

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOPICS = ("orders", "returns")
QUEUES = 3

AnyLog = EmbeddedBus | DatabaseBus | InMemoryLog | KafkaLog | RocketmqLog

#: The shortest time that a log of a kind tells apart, in microseconds.
RESOLUTION = {EmbeddedBus: 1, DatabaseBus: 1, InMemoryLog: 1, KafkaLog: 1_000, RocketmqLog: 1_000}


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def at(self, seconds: float) -> datetime:
        """Return a time so long after the start."""
        return START + timedelta(seconds=seconds)

    def took(self, at: datetime, seconds: float) -> bool:
        """Return whether a message of this time was taken so long after the start."""
        return at == self.at(seconds)


class BrokersClock(Clock):
    """The time of a broker that keeps its own: each moment that this clock is moved to stands for a real one.

    What the broker takes between two moves lies in one file of its, which it drops as a whole.
    """

    def __init__(self, server: RocketMQ) -> None:
        self._server = server
        self._moments = [(0.0, _next_millisecond())]

    @property
    def now(self) -> datetime:  # type: ignore[override]
        return self._moments[-1][1]

    def move(self, seconds: float) -> None:
        begin_file(self._server)
        self._moments.append((self._moments[-1][0] + seconds, _next_millisecond()))

    def drop(self, at: datetime) -> None:
        """Have the broker lose what it took before a moment."""
        drop_old_files(self._server, at)

    def at(self, seconds: float) -> datetime:
        real = [moment for since, moment in self._moments if since >= seconds]
        return real[0] if real else _next_millisecond()

    def took(self, at: datetime, seconds: float) -> bool:
        _, moment = max(each for each in self._moments if each[0] <= seconds)
        return moment <= at <= datetime.now(UTC)


def _next_millisecond() -> datetime:
    """Return the next whole millisecond once it has come."""
    until = time.time_ns() // 1_000_000 + 1
    while time.time_ns() // 1_000_000 < until:
        pass
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=until)


#: A new source is one more line here; `publish` is how its test gets messages into it.
LOGS: dict[str, Callable[[pytest.FixtureRequest, Path, Clock], AnyLog]] = {
    "embedded": lambda _, folder, clock: EmbeddedBus(folder, "shop", topics=TOPICS, queues=QUEUES, clock=clock),
    "memory": lambda _, folder, clock: InMemoryLog(topics=TOPICS, queues=QUEUES, clock=clock),
    "database": lambda _, folder, clock: DatabaseBus(
        DATABASE[0], folder.name, topics=TOPICS, queues=QUEUES, clock=clock
    ),
    "kafka": lambda request, _, clock: kafka_log(request.getfixturevalue("kafka"), clock),
    "rocketmq": lambda request, _, __: rocketmq_log(request.getfixturevalue("rocketmq")),
}

#: The URL of the database of the test that runs, of those that need one.
DATABASE: list[str] = []


@pytest.fixture(autouse=True)
def database(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have an empty database where a log needs one."""
    asked = getattr(request.node, "callspec", None)
    if asked is None or "database" not in asked.params.values():
        yield
        return
    server: Postgresql = request.getfixturevalue("postgresql_server")
    DATABASE[:] = [server.new_database()]
    yield
    server.drop_database(DATABASE.pop())


def kafka_log(broker: Kafka, clock: Clock) -> KafkaLog:
    """Open topics of a broker that were made just now."""
    make_topics(broker, *TOPICS, queues=QUEUES)
    return KafkaLog({"bootstrap.servers": broker.servers}, TOPICS, clock=clock)


def rocketmq_log(server: RocketMQ) -> RocketmqLog:
    """Open topics of a broker that were made just now."""
    make_rocketmq_topics(server, *TOPICS, queues=QUEUES)
    return RocketmqLog(ClientSettings((server.servers,)), TOPICS)


def broker_of(log: AnyLog) -> str:
    """Return the broker on which a log has its queues, "" if it has none."""
    return BROKER if isinstance(log, RocketmqLog) else ""


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> Clock:
    """Return the clock of the log under test."""
    asked = getattr(request.node, "callspec", None)
    if asked is not None and "rocketmq" in asked.params.values():
        return BrokersClock(request.getfixturevalue("rocketmq"))
    return Clock()


@pytest.fixture(params=LOGS)
def log(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[AnyLog]:
    """Yield an empty log of each kind, with two topics of three queues."""
    log = LOGS[request.param](request, tmp_path, clock)
    yield log
    fault_points.install(None)
    log.close()


@pytest.fixture
def queue(log: AnyLog) -> Queue:
    """Return the queue that the key "a" leads to."""
    return Queue("orders", broker_of(log), queue_of_key("a", QUEUES))


def publish(log: AnyLog, bodies: list[bytes], key: str = "a") -> list[int]:
    """Publish under one key and return the offsets."""
    return [offset for _, offset in log.publish([(body, key) for body in bodies])]


def test_it_is_a_log_source(log: AnyLog) -> None:
    """Type checkers see the protocols met: it is read by range, as its kind says, and published to."""
    source: LogSource = log
    publisher: Publisher = log

    assert source.kind == "log"
    assert isinstance(publisher, Publisher)


def test_a_log_keeps_its_identity(log: AnyLog, queue: Queue, clock: Clock) -> None:
    """It was given when the log was made: nothing that happens to messages and offsets changes it."""
    identities = log.identities()
    publish(log, [b"1", b"2"])
    log.commit("crm", {queue: 1})
    clock.move(10)
    drop_older(log, clock.now, clock)

    assert log.identities() == identities
    assert identities.keys() == (set() if isinstance(log, RocketmqLog) else set(TOPICS))
    assert all(len(identity) >= 36 for identity in identities.values())


@pytest.mark.parametrize("kind", [kind for kind in LOGS if kind != "rocketmq"])  # which gives topics no identity
def test_a_log_made_again_has_another_identity(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> None:
    """Same name, same queues, same messages, but not the same log."""
    first = LOGS[kind](request, tmp_path / "first", clock)
    was = first.identities()
    first.close()
    second = LOGS[kind](request, tmp_path / "second", clock)

    assert all(second.identities()[topic] != was[topic] for topic in TOPICS)
    second.close()


def test_a_log_says_where_it_lies(log: AnyLog) -> None:
    """The URI is for messages: one that names a bus can be found by it."""
    assert re.match(r"[a-z]+:", log.uri)


def test_queues_are_there_before_any_message(log: AnyLog) -> None:
    """An empty log has its queues, each beginning and ending at 0."""
    queues = [Queue(topic, broker_of(log), queue_id) for topic in TOPICS for queue_id in range(QUEUES)]

    assert list(log.queues()) == queues
    assert [log.earliest(queue) for queue in queues] == [0] * 6
    assert [log.end(queue) for queue in queues] == [0] * 6
    assert log.ends() == dict.fromkeys(queues, 0)


def test_what_is_published_is_read(log: AnyLog, queue: Queue, clock: Clock) -> None:
    """A message comes back with its bytes, its place and the time the bus took it, whatever the bytes are."""
    bodies = [b"", b"\x00\xff", b'{"a": 1}', "Zürich".encode()]
    clock.move(0.123456)
    part = 0.123456 - 123456 % RESOLUTION[type(log)] / 1_000_000

    assert log.publish([(body, "a") for body in bodies]) == [(queue, offset) for offset in range(4)]
    read = list(messages_of(log.read(queue, 0, 4)))
    assert [message.body for message in read] == bodies
    assert [message.offset for message in read] == [0, 1, 2, 3]
    assert all(clock.took(message.published_at, part) for message in read)
    assert log.end(queue) == log.ends()[queue] == 4


def test_a_range_is_read_and_nothing_else(log: AnyLog, queue: Queue) -> None:
    """Start is included, end is not; an empty range yields nothing; reading again yields the same."""
    publish(log, [str(number).encode() for number in range(10)])

    assert [message.offset for message in messages_of(log.read(queue, 3, 7))] == [3, 4, 5, 6]
    assert [message.offset for message in messages_of(log.read(queue, 3, 7))] == [3, 4, 5, 6]
    assert list(log.read(queue, 7, 7)) == []
    assert [message.body for message in messages_of(log.read(queue, 9, 10))] == [b"9"]


def test_a_log_is_read_by_blocks(log: AnyLog, queue: Queue) -> None:
    """Each block has the columns of `MESSAGES` and at least one message; blocks follow one another by offset."""
    publish(log, [b"x"] * 10)
    blocks = list(log.read(queue, 1, 9))

    assert all(block.schema.equals(MESSAGES) and block.num_rows for block in blocks)
    assert all(block.column(name).null_count == 0 for block in blocks for name in ("offset", "published_at"))
    assert [offset for block in blocks for offset in block["offset"].to_pylist()] == list(range(1, 9))


def test_topics_and_queues_do_not_mix(log: AnyLog) -> None:
    """A message is in the topic and queue that publish named, and in no other."""
    places = log.publish([(b"1", "a"), (b"2", "b"), (b"3", "c")], "returns")
    places += log.publish([(b"4", "a"), (b"5", "b"), (b"6", "c")])

    assert {queue.topic for queue, _ in places} == {"orders", "returns"}
    found = {
        (queue, message.offset): message.body
        for queue in log.queues()
        for message in messages_of(log.read(queue, 0, log.end(queue)))
    }
    assert found == dict(zip(places, [b"1", b"2", b"3", b"4", b"5", b"6"], strict=True))


def test_a_key_keeps_its_queue_and_its_order(log: AnyLog) -> None:
    """All records of a key lie in one queue in the order they were published, in one call or in several."""
    keys = ["JFK", "EWR", "LGA", "x" * 1000, "", "\ud800", "Ω"]
    for number in range(5):
        log.publish([(f"{key!r}/{number}/{part}".encode(), key) for part in range(3) for key in keys])

    read = [
        (queue, message.body) for queue in log.queues() for message in messages_of(log.read(queue, 0, log.end(queue)))
    ]
    for key in keys:
        mine = [(queue, body) for queue, body in read if (body or b"").startswith(f"{key!r}/".encode())]
        assert len({queue for queue, _ in mine}) == 1
        assert [body for _, body in mine] == [f"{key!r}/{n}/{p}".encode() for n in range(5) for p in range(3)]


def test_records_without_a_key_are_spread(log: AnyLog) -> None:
    """Records without a key fill the queues evenly, also one by one."""
    log.publish([(b"x", None)] * 4)
    for _ in range(5):
        log.publish([(b"x", None)])

    assert [log.end(queue) for queue in log.queues()] == [3, 3, 3, 0, 0, 0]


def test_publishing_nothing_is_harmless(log: AnyLog) -> None:
    """No records, no message."""
    assert log.publish([]) == []
    assert set(log.ends().values()) == {0}


def test_a_topic_that_is_not_open_is_refused(log: AnyLog) -> None:
    """Publishing to a topic the log does not have raises BusError and names it."""
    with pytest.raises(BusError, match="refunds"):
        log.publish([(b"x", None)], "refunds")


@pytest.mark.parametrize("unknown", [Queue("orders", "", 3), Queue("refunds", "", 0), Queue("orders", "broker-z", 0)])
def test_a_queue_that_is_not_there_is_refused(log: AnyLog, unknown: Queue) -> None:
    """Every question about a queue the log does not have raises BusError, not an empty answer."""
    for ask in (
        lambda: log.earliest(unknown),
        lambda: log.end(unknown),
        lambda: log.offset_at(unknown, START),
        lambda: log.read(unknown, 0, 0),
        lambda: log.commit("audit", {unknown: 1}),
    ):
        with pytest.raises(BusError):
            ask()


def test_a_range_beyond_the_end_is_refused(log: AnyLog, queue: Queue) -> None:
    """A range that reaches beyond the end was planned on another log: the call raises, and nothing passes as a gap."""
    publish(log, [b"1", b"2"])

    with pytest.raises(OffsetGapError, match=r"0 to 3"):
        log.read(queue, 0, 3)


def test_offset_at_finds_the_first_message_of_a_time(log: AnyLog, queue: Queue, clock: Clock) -> None:
    """Messages of one moment count from the first of them; before all is the start, after all the end."""
    for _ in range(3):
        publish(log, [b"x", b"x"])
        clock.move(10)

    def at(seconds: float) -> int:
        return log.offset_at(queue, clock.at(seconds))

    assert [at(-1), at(0), at(RESOLUTION[type(log)] / 1_000_000), at(10), at(10.5), at(20), at(21)] == [
        0,
        0,
        2,
        2,
        4,
        4,
        6,
    ]
    assert log.offset_at(Queue("returns", broker_of(log), 0), clock.at(0)) == 0


def test_a_clock_that_is_set_back_hides_nothing(log: AnyLog, queue: Queue, clock: Clock) -> None:
    """A start by time does not pass over a message because one before it has a later time."""
    publish(log, [b"1"])
    clock.move(-60)
    publish(log, [b"2"])
    clock.move(61)
    publish(log, [b"3"])

    times = [message.published_at for message in messages_of(log.read(queue, 0, 3))]
    kept = [[0, 0, 1], [0, -60, 1]]  # Kafka keeps what publishers say
    assert any(all(map(clock.took, times, each)) for each in kept)
    assert log.offset_at(queue, clock.at(0)) == 0


def drop_older(log: AnyLog, at: datetime, clock: Clock) -> None:
    """Let the log lose what was published before a time, each kind in its way."""
    if isinstance(log, EmbeddedBus | DatabaseBus):
        log.trim(at)
    elif isinstance(log, KafkaLog):
        drop_before(log.uri, {queue: log.offset_at(queue, at) for queue in log.queues()})
    elif isinstance(clock, BrokersClock):
        clock.drop(at)
    else:
        for queue in log.queues():
            log.lose(queue, 0, log.offset_at(queue, at))


def test_what_a_log_no_longer_holds_is_a_gap(log: AnyLog, queue: Queue, clock: Clock) -> None:
    """Dropped messages are left out, the others keep their offsets, and the start moves; the end does not."""
    for _ in range(3):
        publish(log, [b"x", b"x"])
        clock.move(10)
    drop_older(log, clock.at(15), clock)

    assert log.earliest(queue) == 4
    assert log.end(queue) == 6
    assert [message.offset for message in messages_of(log.read(queue, 1, 6))] == [4, 5]
    assert list(log.read(queue, 0, 4)) == []
    assert log.offset_at(queue, clock.at(0)) == 4
    assert publish(log, [b"y"]) == [6]


def test_a_log_that_lost_everything_begins_at_its_end(log: AnyLog, queue: Queue, clock: Clock) -> None:
    """No message left: earliest is the end, and offsets go on from there."""
    publish(log, [b"x", b"x"])
    clock.move(10)
    drop_older(log, clock.now, clock)

    assert log.earliest(queue) == log.end(queue) == log.offset_at(queue, clock.at(0)) == 2
    assert publish(log, [b"y"]) == [2]
    assert [message.body for message in messages_of(log.read(queue, 0, 3))] == [b"y"]


def test_committed_offsets_are_kept_per_group(log: AnyLog, queue: Queue) -> None:
    """What a group commits is what it gets back; another group and another queue have none."""
    publish(log, [b"x"] * 5)
    log.commit("crm", {queue: 3})
    log.commit("audit", {queue: 5})

    assert log.committed("crm") == {queue: 3}
    assert log.committed("audit") == {queue: 5}
    assert log.committed("nobody") == {}


def test_a_commit_may_be_repeated(log: AnyLog, queue: Queue) -> None:
    """The same commit twice is the same as once; queues that a later commit does not name keep theirs."""
    other = Queue("returns", broker_of(log), 0)
    log.commit("crm", {queue: 0, other: 0})
    log.commit("crm", {queue: 3})
    log.commit("crm", {queue: 3})

    assert log.committed("crm") == {queue: 3, other: 0}


def test_the_bus_does_not_judge_offsets(log: AnyLog, queue: Queue) -> None:
    """The last commit counts, be it lower: only the ledger promises that offsets never go back."""
    publish(log, [b"x"] * 5)
    log.commit("crm", {queue: 4})
    log.commit("crm", {queue: 2})

    assert log.committed("crm") == {queue: 2}


@pytest.mark.parametrize("point", ["bus.publish", "bus.publish.done", "bus.commit", "bus.commit.done", "bus.read"])
def test_a_test_can_stop_every_call(log: AnyLog, queue: Queue, point: str) -> None:
    """Before `.done` nothing has happened, after it all has: the seam that the fault tests stand on."""
    publish(log, [b"1"])

    def stop(reached: str) -> None:
        if reached == point:
            raise RuntimeError(point)

    fault_points.install(stop)
    stopped = []
    for step, act in {
        "bus.publish": lambda: publish(log, [b"2"]),
        "bus.commit": lambda: log.commit("crm", {queue: 1}),
        "bus.read": lambda: list(log.read(queue, 0, 1)),
    }.items():
        try:
            act()
        except RuntimeError:
            stopped.append(step)
    fault_points.install(None)

    assert stopped == [point.removesuffix(".done")]
    assert log.end(queue) == (1 if point == "bus.publish" else 2)
    assert log.committed("crm") == ({} if point == "bus.commit" else {queue: 1})


def test_two_publishers_at_once(log: AnyLog) -> None:
    """Two publishers get disjoint, dense offsets, and each message lies where its publisher was told."""
    barrier = threading.Barrier(2)

    def run(name: str) -> dict[tuple[Queue, int], bytes]:
        barrier.wait()
        told = {}
        for number in range(20):
            bodies = [f"{name}/{number}/{part}".encode() for part in range(10)]
            told.update(zip(log.publish([(body, None) for body in bodies]), bodies, strict=True))
        return told

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, ["left", "right"])

    assert not first.keys() & second.keys()
    ends = log.ends()
    assert sum(ends.values()) == 400
    found = {
        (queue, message.offset): message.body
        for queue in ends
        for message in messages_of(log.read(queue, 0, ends[queue]))
    }
    assert found == first | second


def test_reading_goes_on_while_others_publish(log: AnyLog, queue: Queue) -> None:
    """A reader that follows the end sees every message once, in order, with no hole."""
    done = threading.Event()

    def write() -> None:
        for number in range(100):
            publish(log, [str(number).encode()])
        done.set()

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        seen: list[bytes] = []
        for last in itertools.chain(iter(done.is_set, True), [True]):
            end = log.end(queue)
            seen += [message.body or b"" for message in messages_of(log.read(queue, len(seen), end))]
            assert len(seen) == end, last
        writer.result()

    assert seen == [str(number).encode() for number in range(100)]
