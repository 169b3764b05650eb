"""The embedded bus in one process: its file, its topics, its limits."""

from __future__ import annotations

import os
import select
import shutil
import sqlite3
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from unit.buses import PARTITION, START, at_start

from eventbridge import fault_points
from eventbridge.config.settings import Settings
from eventbridge.errors import BusError
from eventbridge.model.partition import Partition
from eventbridge.rules import Bus
from eventbridge.sources.embedded import table_log, tables
from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.sources.embedded.fields import EmbeddedFields
from eventbridge.sources.open import open_source
from eventbridge.testing.sources import messages_of


def path_of(descriptor: int) -> str:
    """Return the path of an open file."""
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


def test_it_is_durable_before_it_responds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    """A process that finds the file cannot know that its maker has synced the folder already."""
    EmbeddedBus(tmp_path, "shop", clock=at_start).close()
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(path_of(descriptor)))
    EmbeddedBus(tmp_path, "shop", clock=at_start).close()

    assert synced == [str(tmp_path)]


def test_it_is_all_there_when_opened_again(tmp_path: Path) -> None:
    """Messages, topics and committed offsets outlive the object."""
    with EmbeddedBus(tmp_path, "shop", topics=["orders", "returns"], partitions=2, clock=at_start) as bus:
        (position,) = bus.publish([(b"1", "a")], "returns")
        bus.commit("crm", {position[0]: 1})
    with EmbeddedBus(tmp_path, "shop", topics=["orders", "returns"], partitions=2, clock=at_start) as bus:
        assert [message.body for message in messages_of(bus.read(position[0], 0, 1))] == [b"1"]
        assert bus.committed("crm") == {position[0]: 1}


def test_a_bus_is_known_by_its_file(tmp_path: Path) -> None:
    """Opened again, under another name or from a copy it is the same bus; a recreated file under its name is not."""
    with EmbeddedBus(tmp_path, "shop", clock=at_start) as bus:
        identity = bus.identities()
    shutil.copy(bus.path, tmp_path / "copy.sqlite")
    with EmbeddedBus(tmp_path, "shop", clock=at_start) as bus, EmbeddedBus(tmp_path, "copy", clock=at_start) as copy:
        assert bus.identities() == copy.identities() == identity
        assert bus.uri == bus.path.as_uri()

    bus.path.unlink()
    with EmbeddedBus(tmp_path, "shop", clock=at_start) as bus:
        assert bus.identities() != identity


def test_a_file_of_an_earlier_version_gets_an_identity(tmp_path: Path) -> None:
    """One, in any order and number of processes that open it; the bus keeps its messages."""
    with EmbeddedBus(tmp_path, "shop", partitions=1, clock=at_start) as bus:
        bus.publish([(b"1", None)])
    with sqlite3.connect(bus.path) as made:
        made.execute("DROP TABLE meta")
    made.close()
    barrier = threading.Barrier(4)

    def identity(_: int) -> str:
        barrier.wait()
        with EmbeddedBus(tmp_path, "shop", clock=at_start) as bus:
            return bus.identities()["events"]

    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(identity, range(4)))
    with EmbeddedBus(tmp_path, "shop", clock=at_start) as bus:
        assert set(bus.identities().values()) == found
        assert [message.body for message in messages_of(bus.read(PARTITION, 0, 1))] == [b"1"]


def test_a_topic_keeps_its_partitions(tmp_path: Path) -> None:
    """Another number of partitions later changes nothing, or a key's messages would leave their partition."""
    EmbeddedBus(tmp_path, "shop", partitions=2, clock=at_start).close()
    with EmbeddedBus(tmp_path, "shop", partitions=8, clock=at_start) as bus:
        assert len(bus.partitions()) == 2


def test_only_the_topics_asked_for_are_seen(tmp_path: Path) -> None:
    """Partitions, ends, offsets and trimming know only the topics a bus was opened with."""
    with EmbeddedBus(tmp_path, "shop", topics=["orders", "returns"], partitions=1, clock=at_start) as both:
        both.publish([(b"1", None)], "orders")
        both.publish([(b"2", None)], "returns")
        orders, returns = both.partitions()
        both.commit("crm", {orders: 1, returns: 1})
        with EmbeddedBus(tmp_path, "shop", topics=["returns"], clock=at_start) as one:
            assert list(one.partitions()) == [returns]
            assert one.ends() == {returns: 1}
            assert one.committed("crm") == {returns: 1}
            with pytest.raises(BusError, match="orders"):
                one.end(orders)
            assert one.trim(START + timedelta(days=1)) == 1
        assert [both.earliest(orders), both.earliest(returns)] == [0, 1]


def test_a_topic_may_come_later(tmp_path: Path) -> None:
    """A topic that is new to a bus is made when the bus is opened with it; existing ones stay."""
    with EmbeddedBus(tmp_path, "shop", topics=["orders"], partitions=1, clock=at_start) as bus:
        bus.publish([(b"1", None)])
    with EmbeddedBus(tmp_path, "shop", topics=["orders", "returns"], partitions=3, clock=at_start) as bus:
        assert list(bus.ends().values()) == [1, 0, 0, 0]


def test_a_publish_that_fails_leaves_nothing(bus: EmbeddedBus) -> None:
    """All records of a call are stored or none is."""
    with pytest.raises(BusError):
        bus.publish([(b"1", None), ("text", None)])  # type: ignore[list-item]

    assert bus.end(PARTITION) == 0
    assert bus.publish([(b"2", None)]) == [(PARTITION, 0)]


def test_reading_needs_little_memory(bus: EmbeddedBus) -> None:
    """A range of 64 MiB passes through with a page of it in memory at a time."""
    for _ in range(16):
        bus.publish([(os.urandom(1024 * 1024), None)] * 4)
    tracemalloc.start()
    try:
        total = sum(len(message.body or b"") for message in messages_of(bus.read(PARTITION, 0, 64)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert total == 64 * 1024 * 1024
    assert peak < 3 * tables.PAGE_BYTES


def test_a_range_of_several_pages_is_whole(bus: EmbeddedBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages end by number and by bytes, and nothing is lost or doubled where they meet."""
    monkeypatch.setattr(tables, "PAGE_MESSAGES", 7)
    monkeypatch.setattr(tables, "PAGE_BYTES", 50)
    bodies = [b"x" * (number % 20) for number in range(200)]
    bus.publish([(body, None) for body in bodies])

    assert [message.body for message in messages_of(bus.read(PARTITION, 0, 200))] == bodies
    assert [message.offset for message in messages_of(bus.read(PARTITION, 3, 197))] == list(range(3, 197))


def test_a_slow_reader_blocks_no_writer(bus: EmbeddedBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two messages a reader holds no lock and no snapshot: others publish, trim and checkpoint meanwhile."""
    monkeypatch.setattr(tables, "PAGE_MESSAGES", 2)
    for _ in range(6):
        bus.publish([(b"x", None)])
    reader = messages_of(bus.read(PARTITION, 0, 6))
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
    monkeypatch.setattr(table_log, "TRIM_MESSAGES", 3)
    for _ in range(10):
        bus.publish([(b"x", None)])

    assert bus.trim(START) == 0
    assert bus.trim(START + timedelta(seconds=7)) == 7
    assert bus.earliest(PARTITION) == 7
    assert bus.trim(START + timedelta(days=1)) == 3
    assert (bus.earliest(PARTITION), bus.end(PARTITION)) == (10, 10)


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
                end = bus.ends()[PARTITION]
                assert sum(1 for _ in messages_of(bus.read(PARTITION, 0, end))) == end
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert bus.end(PARTITION) == 800


def test_no_thread_sees_a_publish_before_its_commit(bus: EmbeddedBus) -> None:
    """A thread that asks while another publishes waits, and never hears of what is undone afterwards."""
    take_signal: list[int] = []
    asker = threading.Thread(target=lambda: take_signal.append(bus.end(PARTITION)))

    def ask_then_fail(point: str) -> None:
        if point == "bus.publish.written":
            asker.start()
            asker.join(0.2)
            raise RuntimeError

    fault_points.install(ask_then_fail)
    try:
        with pytest.raises(RuntimeError):
            bus.publish([(b"x", None)])
    finally:
        fault_points.install(None)
    asker.join()

    assert take_signal == [0]


def test_a_listener_gets_one_signal_per_publish(bus: EmbeddedBus) -> None:
    """Any publisher's messages are announced once, as soon as they can be read; a closed bus announces nothing."""
    reported = bus.announcements()
    assert reported is not None
    assert bus.announcements() is reported
    assert not reported.take_signal()
    with EmbeddedBus(bus.path.parent, bus.bus, clock=at_start) as another:
        another.publish([(b"{}", None)] * 2)
        another.publish([(b"{}", None)])

    assert select.select([reported], [], [], 10)[0] == [reported]
    assert reported.take_signal()
    assert not reported.take_signal()


def test_a_rule_files_bus_is_opened(tmp_path: Path) -> None:
    """`open_source` opens what the rule file names, in the folder of the settings."""
    settings = Settings.from_mapping({"EVENTBRIDGE_HOME": str(tmp_path)})
    bus = Bus(name="shop", source=EmbeddedFields(topics=("orders",), partitions=2))
    source = open_source(bus, settings, lambda _: None, at_start)  # type: ignore[arg-type, return-value]
    assert isinstance(source, EmbeddedBus)
    with source:
        assert list(source.partitions()) == [Partition("orders", "", 0), Partition("orders", "", 1)]
        assert source.path == Path(settings.bus_folder) / "shop.sqlite"
