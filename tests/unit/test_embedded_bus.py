"""The embedded bus in one process: its file, its topics, its limits and what it says when something is wrong."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sqlite3
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eventbridge import faults
from eventbridge.errors import BusError, OffsetGapError, UserError
from eventbridge.queue import Queue
from eventbridge.rule import Bus, Source
from eventbridge.settings import Settings
from eventbridge.sources import bus_file, embedded
from eventbridge.sources.embedded import EmbeddedBus
from eventbridge.sources.open import open_source

START = datetime(2026, 3, 1, tzinfo=UTC)
QUEUE = Queue("events", "", 0)


def at_start() -> datetime:
    """Return one fixed moment."""
    return START


def ticking() -> Callable[[], datetime]:
    """Return a clock that moves on by a second each time it is asked."""
    seconds = iter(range(1_000_000))
    return lambda: START + timedelta(seconds=next(seconds))


def path_of(descriptor: int) -> str:
    """Return the path of an open file."""
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[EmbeddedBus]:
    """Yield an empty bus of one queue whose clock ticks with every publish."""
    with EmbeddedBus(tmp_path, "shop", queues=1, clock=ticking()) as bus:
        yield bus


def test_it_is_durable_before_it_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection writes ahead and waits for the disk; the defaults of SQLite would not wait."""
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def remember(path: Path, **options: object) -> sqlite3.Connection:
        opened.append(connect(path, **options))  # type: ignore[call-overload]
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", remember)
    with EmbeddedBus(tmp_path, "shop", clock=at_start), EmbeddedBus(tmp_path, "shop", clock=at_start):
        _draft, *used = opened

        assert len(used) == 2
        for connection in used:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
            assert connection.execute("PRAGMA busy_timeout").fetchone() == (30_000,)


def test_the_file_and_its_name_are_on_disk_before_the_bus_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new file is synced under its draft name, then its folder and each new folder above it."""
    synced: list[str] = []
    fsync = os.fsync

    def remember(descriptor: int) -> None:
        synced.append(path_of(descriptor))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", remember)
    EmbeddedBus(tmp_path / "a" / "b", "shop", clock=at_start).close()

    above, upper, draft, folder = synced
    assert [above, upper, folder] == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    assert Path(draft).name.startswith(".shop.sqlite.")
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == ["shop.sqlite", "shop.sqlite.lock"]


def test_another_opener_syncs_the_folder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who finds the file there cannot know that its maker has synced the folder already."""
    EmbeddedBus(tmp_path, "shop", clock=at_start).close()
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(path_of(descriptor)))
    EmbeddedBus(tmp_path, "shop", clock=at_start).close()

    assert synced == [str(tmp_path)]


def test_it_is_all_there_when_opened_again(tmp_path: Path) -> None:
    """Messages, topics and committed offsets outlive the object."""
    with EmbeddedBus(tmp_path, "shop", topics=["orders", "returns"], queues=2, clock=at_start) as bus:
        (place,) = bus.publish([(b"1", "a")], "returns")
        bus.commit("crm", {place[0]: 1})
    with EmbeddedBus(tmp_path, "shop", topics=["orders", "returns"], queues=2, clock=at_start) as bus:
        assert [message.body for message in bus.read(place[0], 0, 1)] == [b"1"]
        assert bus.committed("crm") == {place[0]: 1}


def test_a_bus_is_known_by_its_file(tmp_path: Path) -> None:
    """Opened again, under another name or from a copy it is the same bus; a file made anew under its name is not."""
    with EmbeddedBus(tmp_path, "shop", clock=at_start) as bus:
        identity = bus.identity()
    shutil.copy(bus.path, tmp_path / "copy.sqlite")
    with EmbeddedBus(tmp_path, "shop", clock=at_start) as bus, EmbeddedBus(tmp_path, "copy", clock=at_start) as copy:
        assert bus.identity() == copy.identity() == identity
        assert bus.uri == bus.path.as_uri()

    bus.path.unlink()
    with EmbeddedBus(tmp_path, "shop", clock=at_start) as bus:
        assert bus.identity() != identity


def test_a_file_of_an_earlier_version_gets_an_identity(tmp_path: Path) -> None:
    """One, whoever opens it first and however many at once; what the bus holds stays."""
    with EmbeddedBus(tmp_path, "shop", queues=1, clock=at_start) as bus:
        bus.publish([(b"1", None)])
    with sqlite3.connect(bus.path) as made:
        made.execute("DROP TABLE meta")
    made.close()
    barrier = threading.Barrier(4)

    def identity(_: int) -> str:
        barrier.wait()
        with EmbeddedBus(tmp_path, "shop", clock=at_start) as bus:
            return bus.identity()

    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(identity, range(4)))
    with EmbeddedBus(tmp_path, "shop", clock=at_start) as bus:
        assert {bus.identity()} == found
        assert [message.body for message in bus.read(QUEUE, 0, 1)] == [b"1"]


def test_a_topic_keeps_its_queues(tmp_path: Path) -> None:
    """Another number of queues later changes nothing, or a key's messages would leave their queue."""
    EmbeddedBus(tmp_path, "shop", queues=2, clock=at_start).close()
    with EmbeddedBus(tmp_path, "shop", queues=8, clock=at_start) as bus:
        assert len(bus.queues()) == 2


def test_only_the_topics_asked_for_are_seen(tmp_path: Path) -> None:
    """Queues, ends, offsets and trimming know only the topics a bus was opened with."""
    with EmbeddedBus(tmp_path, "shop", topics=["orders", "returns"], queues=1, clock=at_start) as both:
        both.publish([(b"1", None)], "orders")
        both.publish([(b"2", None)], "returns")
        orders, returns = both.queues()
        both.commit("crm", {orders: 1, returns: 1})
        with EmbeddedBus(tmp_path, "shop", topics=["returns"], clock=at_start) as one:
            assert list(one.queues()) == [returns]
            assert one.ends() == {returns: 1}
            assert one.committed("crm") == {returns: 1}
            with pytest.raises(BusError, match="orders"):
                one.end(orders)
            assert one.trim(START + timedelta(days=1)) == 1
        assert [both.earliest(orders), both.earliest(returns)] == [0, 1]


def test_a_topic_may_come_later(tmp_path: Path) -> None:
    """A topic that is new to a bus is made when the bus is opened with it; what is there stays."""
    with EmbeddedBus(tmp_path, "shop", topics=["orders"], queues=1, clock=at_start) as bus:
        bus.publish([(b"1", None)])
    with EmbeddedBus(tmp_path, "shop", topics=["orders", "returns"], queues=3, clock=at_start) as bus:
        assert list(bus.ends().values()) == [1, 0, 0, 0]


@pytest.mark.parametrize("name", ["", "a/b", "../up", ".hidden", "a b", "ä"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    """A bus is a file of its folder, and nothing else."""
    with pytest.raises(UserError, match="cannot name a bus"):
        EmbeddedBus(tmp_path, name, clock=at_start)


def test_a_bus_has_topics_and_queues(tmp_path: Path) -> None:
    """None of either is refused before a file is made."""
    with pytest.raises(UserError, match="at least one"):
        EmbeddedBus(tmp_path, "shop", topics=[], clock=at_start)
    with pytest.raises(UserError, match="at least one"):
        EmbeddedBus(tmp_path, "shop", queues=0, clock=at_start)

    assert list(tmp_path.iterdir()) == []


def test_a_publish_that_fails_leaves_nothing(bus: EmbeddedBus) -> None:
    """All records of a call are there or none is."""
    with pytest.raises(BusError):
        bus.publish([(b"1", None), ("text", None)])  # type: ignore[list-item]

    assert bus.end(QUEUE) == 0
    assert bus.publish([(b"2", None)]) == [(QUEUE, 0)]


def test_reading_needs_little_memory(bus: EmbeddedBus) -> None:
    """A range of 64 MiB passes through with a page of it in memory at a time."""
    for _ in range(16):
        bus.publish([(os.urandom(1024 * 1024), None)] * 4)
    tracemalloc.start()
    try:
        total = sum(len(message.body) for message in bus.read(QUEUE, 0, 64))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert total == 64 * 1024 * 1024
    assert peak < 3 * embedded.PAGE_BYTES


def test_a_range_of_several_pages_is_whole(bus: EmbeddedBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages end by number and by bytes, and nothing is lost or doubled where they meet."""
    monkeypatch.setattr(embedded, "PAGE_MESSAGES", 7)
    monkeypatch.setattr(embedded, "PAGE_BYTES", 50)
    bodies = [b"x" * (number % 20) for number in range(200)]
    bus.publish([(body, None) for body in bodies])

    assert [message.body for message in bus.read(QUEUE, 0, 200)] == bodies
    assert [message.offset for message in bus.read(QUEUE, 3, 197)] == list(range(3, 197))


def test_a_slow_reader_holds_up_nobody(bus: EmbeddedBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two messages a reader holds no lock and no snapshot: others publish, trim and checkpoint meanwhile."""
    monkeypatch.setattr(embedded, "PAGE_MESSAGES", 2)
    for _ in range(6):
        bus.publish([(b"x", None)])
    reader = bus.read(QUEUE, 0, 6)
    first = next(reader)
    bus.publish([(b"y", None)])
    bus.trim(START + timedelta(seconds=5))
    with sqlite3.connect(bus.path) as other:
        busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    other.close()

    assert busy == 0
    # The page that was in memory comes whole, then what the trim left.
    assert [first.offset, *(message.offset for message in reader)] == [0, 1, 5]


def test_trim_goes_in_steps(bus: EmbeddedBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long trim is several transactions; what it drops and keeps does not depend on that."""
    monkeypatch.setattr(embedded, "TRIM_MESSAGES", 3)
    for _ in range(10):
        bus.publish([(b"x", None)])

    assert bus.trim(START) == 0
    assert bus.trim(START + timedelta(seconds=7)) == 7
    assert bus.earliest(QUEUE) == 7
    assert bus.trim(START + timedelta(days=1)) == 3
    assert (bus.earliest(QUEUE), bus.end(QUEUE)) == (10, 10)


def test_trimmed_room_is_used_again(bus: EmbeddedBus) -> None:
    """With retention the file stops growing."""
    sizes = []
    for _ in range(4):
        for _ in range(5):
            bus.publish([(os.urandom(1000), None)] * 200)
        bus.trim(START + timedelta(days=30))
        with sqlite3.connect(bus.path) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.close()
        sizes.append(bus.path.stat().st_size)

    assert sizes[-1] <= 1.05 * sizes[0]


def test_threads_may_share_a_bus(bus: EmbeddedBus) -> None:
    """Eight threads that publish and read at once neither fail nor lose anything."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                bus.publish([(b"x", None)] * 5)
                end = bus.ends()[QUEUE]
                assert sum(1 for _ in bus.read(QUEUE, 0, end)) == end
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert bus.end(QUEUE) == 800


def test_no_thread_sees_a_publish_before_its_commit(bus: EmbeddedBus) -> None:
    """A thread that asks while another publishes waits, and never hears of what is undone afterwards."""
    heard: list[int] = []
    asker = threading.Thread(target=lambda: heard.append(bus.end(QUEUE)))

    def ask_then_fail(point: str) -> None:
        if point == "bus.publish.written":
            asker.start()
            asker.join(0.2)
            raise RuntimeError

    faults.install(ask_then_fail)
    try:
        with pytest.raises(RuntimeError):
            bus.publish([(b"x", None)])
    finally:
        faults.install(None)
    asker.join()

    assert heard == [0]


def test_a_locked_bus_says_so(bus: EmbeddedBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that somebody else keeps out gives up after its time, with a remedy; reading goes on."""
    monkeypatch.setattr(bus_file, "BUSY_SECONDS", 0.05)
    with Path(f"{bus.path}.lock").open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(BusError, match=r"shop\.sqlite: the bus is locked.*fuser"):
            bus.publish([(b"x", None)])

        assert bus.end(QUEUE) == 0
    assert bus.publish([(b"x", None)]) == [(QUEUE, 0)]


def test_a_writer_outside_the_product_is_respected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that some other program holds open in the file is waited for, then reported."""
    monkeypatch.setattr(bus_file, "BUSY_SECONDS", 0.05)
    with EmbeddedBus(tmp_path, "shop", queues=1, clock=at_start) as bus:
        other = sqlite3.connect(bus.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BusError, match=r"database is locked.*fuser"):
            bus.publish([(b"x", None)])
        other.close()

        assert bus.publish([(b"x", None)]) == [(QUEUE, 0)]


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """Any other file under the bus's name is left as it is."""
    (tmp_path / "shop.sqlite").write_bytes(b"something else" * 100)
    with pytest.raises(BusError, match=r"not a database.*move it away"):
        EmbeddedBus(tmp_path, "shop", clock=at_start)

    assert (tmp_path / "shop.sqlite").read_bytes() == b"something else" * 100


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_a_database_that_is_no_bus_is_refused(tmp_path: Path, journal: str) -> None:
    """Some other SQLite database is left as it is."""
    with sqlite3.connect(tmp_path / "shop.sqlite") as other:
        other.execute(f"PRAGMA journal_mode = {journal}")
        other.execute("CREATE TABLE mine (x)")
    other.close()
    before = (tmp_path / "shop.sqlite").read_bytes()
    with pytest.raises(BusError, match="no event bus"):
        EmbeddedBus(tmp_path, "shop", clock=at_start)

    assert (tmp_path / "shop.sqlite").read_bytes() == before


def test_a_bus_of_another_version_is_refused(tmp_path: Path) -> None:
    """A bus that a later program has made is not touched."""
    EmbeddedBus(tmp_path, "shop", clock=at_start).close()
    with sqlite3.connect(tmp_path / "shop.sqlite") as other:
        other.execute("PRAGMA user_version = 7")
    other.close()
    with pytest.raises(BusError, match=r"version 7.*Update"):
        EmbeddedBus(tmp_path, "shop", clock=at_start)


def test_a_damaged_bus_says_so(tmp_path: Path) -> None:
    """Pages overwritten on disk are an error with a remedy, never a gap."""
    with EmbeddedBus(tmp_path, "shop", queues=1, clock=at_start) as bus:
        bus.publish([(os.urandom(1000), None)] * 100)
    with bus.path.open("r+b") as file:
        file.seek(4096 * 4)
        file.write(os.urandom(4096 * 10))
    with (
        pytest.raises(BusError, match=r"malformed.*backup"),
        EmbeddedBus(tmp_path, "shop", queues=1, clock=at_start) as bus,
    ):
        list(bus.read(QUEUE, 0, 100))


def test_a_full_disk_says_so(tmp_path: Path) -> None:
    """SQLite's own "disk is full" gets the file, what is free in its folder, and a remedy."""
    path = tmp_path / "full.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    connection.execute("PRAGMA max_page_count = 3")
    with (
        pytest.raises(
            BusError, match=rf"full\.sqlite: the disk is full, {tmp_path} has [\d,]+ bytes left\. Free some space there"
        ),
        bus_file.bus_errors(path),
    ):
        connection.execute("INSERT INTO t VALUES (zeroblob(1000000))")
    connection.close()


@pytest.mark.parametrize(
    ("folder", "told"), [("/proc", "the disk is full, /proc has 0 bytes left"), ("/", "disk I/O error. Look at")]
)
def test_an_io_error_of_a_full_disk_is_told_as_one(folder: str, told: str) -> None:
    """SQLite calls a full disk an I/O error too; where there is room it is a fault of the disk."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC

    with pytest.raises(BusError, match=told), bus_file.bus_errors(Path(folder) / "shop.sqlite"):
        raise error


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.ENOSPC, "Free some"), (errno.EACCES, "Let the user"), (errno.EIO, "Look at")]
)
def test_what_the_system_refuses_is_a_bus_error(tmp_path: Path, number: int, remedy: str) -> None:
    """An OSError gets the file and a remedy, and stays the cause."""
    with pytest.raises(BusError, match=remedy) as caught, bus_file.bus_errors(tmp_path / "x.sqlite"):
        raise OSError(number, os.strerror(number))

    assert (os.strerror(number) in str(caught.value)) == (number != errno.ENOSPC)
    assert isinstance(caught.value.__cause__, OSError)


def test_a_folder_that_is_a_file_says_so(tmp_path: Path) -> None:
    """The bus folder cannot be made where a file lies."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(BusError, match="taken"):
        EmbeddedBus(tmp_path / "taken", "shop", clock=at_start)


def test_a_closed_bus_says_so(bus: EmbeddedBus) -> None:
    """Using a bus after close is a BusError; closing twice is harmless."""
    bus.close()
    bus.close()
    with pytest.raises(BusError, match="closed"):
        bus.ends()


def test_a_bus_put_back_empty_is_noticed(tmp_path: Path) -> None:
    """A planned range of a bus whose file was taken away is an error, not a hole in the log."""
    with EmbeddedBus(tmp_path, "shop", queues=1, clock=at_start) as bus:
        bus.publish([(b"x", None)] * 5)
    bus.path.unlink()
    with (
        EmbeddedBus(tmp_path, "shop", queues=1, clock=at_start) as bus,
        pytest.raises(OffsetGapError, match="replaced"),
    ):
        bus.read(QUEUE, 2, 5)


def test_a_rule_files_bus_is_opened(tmp_path: Path) -> None:
    """`open_source` opens what the rule file names, in the folder of the settings."""
    settings = Settings.from_mapping({"EVENTBRIDGE_HOME": str(tmp_path)})
    source = open_source(Bus(name="shop", source=Source(topics=("orders",), queues=2)), settings, at_start)
    with source:
        assert list(source.queues()) == [Queue("orders", "", 0), Queue("orders", "", 1)]
        assert source.path == Path(settings.bus_folder) / "shop.sqlite"
