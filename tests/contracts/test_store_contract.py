"""What every store must do: each test runs against the real one and against the fake. A new store is one more line.

The S3 server is s3proxy, or another one that runs already: TEST_S3_CONNECTION (an `aws://` URI) and TEST_S3_BUCKET say
where.
"""

from __future__ import annotations

import itertools
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from demo.s3_server import connection_uri, make_bucket
from s3proxy.server import s3proxy

from eventbridge import fault_points
from eventbridge.errors import StoreError, StoreFileMissing
from eventbridge.store import layout
from eventbridge.store.compacted import CompactedFile, CompactedStore, write_list
from eventbridge.store.open import open_store
from eventbridge.store.protocol import Store
from eventbridge.testing.store import InMemoryStore

STORES: dict[str, Callable[[Path], Store]] = {
    "file": lambda folder: open_store(f"file://{folder}/not/made/yet"),
    "memory": lambda folder: InMemoryStore(),
    "s3": lambda folder: open_store(f"s3://real@{BUCKET}/{uuid.uuid4().hex}/deep"),
}
BUCKET = os.environ.get("TEST_S3_BUCKET") or "contract"


@pytest.fixture(scope="module")
def real_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the connection to an S3 server that is not ours, which has the bucket."""
    if "TEST_S3_BUCKET" in os.environ:
        yield os.environ["TEST_S3_CONNECTION"]
        return
    with s3proxy(tmp_path_factory.mktemp("s3proxy")) as port:
        make_bucket(port, BUCKET)
        yield connection_uri(port)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Return an empty store of each kind."""
    if request.param == "s3":
        monkeypatch.setenv("EVENTBRIDGE_CONN_REAL", request.getfixturevalue("real_s3"))
    return STORES[request.param](tmp_path)


class Stopped(Exception):
    """What the hook of these tests raises in place of the n-th call."""


def stop_at(number: int) -> None:
    """Have the `number`-th point reached from now on raise."""
    left = iter(range(number))

    def hook(point: str) -> None:
        if next(left, None) is None:
            raise Stopped(point)

    fault_points.install(hook)


def points_of(call: Callable[[], object]) -> list[str]:
    """Return the names of the points a call reaches."""
    reached: list[str] = []
    fault_points.install(reached.append)
    call()
    fault_points.install(None)
    return reached


def test_bytes_come_back_as_they_were_put(store: Store) -> None:
    """A file holds the bytes that were put, whatever they are."""
    every_byte = bytes(range(256)) * 300
    store.put("buffer/bus=flights/date=2026-01-01/x.parquet", every_byte)

    assert store.get("buffer/bus=flights/date=2026-01-01/x.parquet") == every_byte


def test_an_empty_file_is_a_file(store: Store) -> None:
    """No bytes are not no file."""
    store.put("a/empty", b"")

    assert store.exists("a/empty")
    assert store.get("a/empty") == b""


def test_put_replaces(store: Store) -> None:
    """The later of two puts stays."""
    store.put("a/x", b"first and long")
    store.put("a/x", b"second")

    assert store.get("a/x") == b"second"


def test_create_writes_once(store: Store) -> None:
    """The first create wins, the second returns False and changes nothing."""
    assert store.create("a/x", b"first")
    assert not store.create("a/x", b"second")

    assert store.get("a/x") == b"first"


def test_create_loses_against_put(store: Store) -> None:
    """It does not matter how the file came to be there."""
    store.put("a/x", b"first")

    assert not store.create("a/x", b"second")
    assert store.get("a/x") == b"first"


def test_one_of_sixteen_creators_wins(store: Store) -> None:
    """With any number of concurrent writers, one create returns True and its bytes are stored."""
    for round_number in range(20):
        start = threading.Barrier(16)

        def create(writer: int, path: str = f"runners/{round_number}.json", start: threading.Barrier = start) -> bool:
            start.wait()
            return store.create(path, b"writer %d" % writer)

        with ThreadPoolExecutor(16) as pool:
            won = list(pool.map(create, range(16)))

        assert sum(won) == 1
        assert store.get(f"runners/{round_number}.json") == b"writer %d" % won.index(True)


def test_a_reader_never_sees_a_file_half_replaced(store: Store) -> None:
    """While a file is replaced again and again, each reading gives one version whole."""
    versions = [bytes([number]) * 2_000_000 for number in range(2)]
    store.put("a/x", versions[0])
    read_enough = threading.Event()

    def replace() -> None:
        for number in itertools.count():
            store.put("a/x", versions[number % 2])
            if read_enough.is_set():
                return

    with ThreadPoolExecutor(1) as pool:
        replacing = pool.submit(replace)
        seen: list[int] = []
        try:
            while len(seen) < 20 or len(set(seen)) < 2:  # both versions: it is read while it is replaced
                seen.append(versions.index(store.get("a/x")))
        finally:
            read_enough.set()
        replacing.result()


def test_an_absent_value_is_missing(store: Store) -> None:
    """get and open say which file is missing, where, and what to do; exists says False; delete does not mind."""
    store.put("a/x", b"")

    for path in ("nothing", "a", "a/y", "b/x"):
        assert not store.exists(path)
        reported = f"The store {store.uri} has no file '{path}'. Restore it.*EVENTBRIDGE_STORE_URI"
        with pytest.raises(StoreFileMissing, match=reported):
            store.get(path)
        with pytest.raises(StoreFileMissing, match=reported):
            store.open(path)
    store.delete("a/y")


def test_open_reads_at_any_place(store: Store) -> None:
    """An open file can be read from any position."""
    store.put("a/x", bytes(range(100)))

    with store.open("a/x") as file:
        file.seek(90)
        assert file.read(3) == bytes([90, 91, 92])
        file.seek(2)
        assert file.read(2) == bytes([2, 3])
        assert file.size() == 100


def test_list_is_by_the_beginning_of_the_text(store: Store) -> None:
    """A prefix may end within a name; the response is sorted by code point and goes through all folders."""
    for path in ("b/2/x", "b/2-1", "b/1", "b/10", "bb", "a/é", "a/z"):
        store.put(path, b"")

    assert store.list("") == ["a/z", "a/é", "b/1", "b/10", "b/2-1", "b/2/x", "bb"]
    assert store.list("b") == ["b/1", "b/10", "b/2-1", "b/2/x", "bb"]
    assert store.list("b/") == ["b/1", "b/10", "b/2-1", "b/2/x"]
    assert store.list("b/1") == ["b/1", "b/10"]
    assert store.list("b/2/") == ["b/2/x"]
    assert store.list("c/d") == []
    assert store.list("bb/") == []


def test_size_is_of_what_a_list_finds(store: Store) -> None:
    """In bytes, by the beginning of the text, which may end within a name."""
    for path, size in (("b/2/x", 1), ("b/2-1", 2), ("b/1", 4), ("b/10/y", 8), ("bb", 16), ("a/z", 32)):
        store.put(path, bytes(size))

    assert [store.size(each) for each in ("", "b", "b/", "b/1", "b/2/", "c/d", "bb/")] == [63, 31, 15, 12, 1, 0, 0]


def test_list_after_a_text(store: Store) -> None:
    """`after` leaves out what sorts up to it, whole folders and the text itself too; it need not be a path."""
    for path in ("m/d=1/a", "m/d=1/b", "m/d=2/a", "m/d=2/b", "m/d=3/a", "n/x"):
        store.put(path, b"")

    assert store.list("m/", "m/d=2/a") == ["m/d=2/b", "m/d=3/a"]
    assert store.list("m/", "m/d=2/aa") == ["m/d=2/b", "m/d=3/a"]
    assert store.list("m/", "m/d=2") == ["m/d=2/a", "m/d=2/b", "m/d=3/a"]
    assert store.list("m/d=1", "a") == ["m/d=1/a", "m/d=1/b"]
    assert store.list("m/", "m/d=3/a") == []
    assert store.list("m/", "n") == []


@pytest.mark.parametrize("size", [8 << 20, (8 << 20) + 1, (16 << 20) + 1, 33 << 20])
def test_large_files_are_whole_too(store: Store, size: int) -> None:
    """However a store takes a large file, in one go or in parts: all its bytes, and of two creators one."""
    content = bytes(range(251)) * (size // 251 + 1)
    store.put("a/put", pa.py_buffer(content[:size]))

    assert store.create("a/created", content[:size])
    assert not store.create("a/created", content[1 : size + 1])
    for path in ("a/put", "a/created"):
        assert store.get(path) == content[:size]
    assert store.list("") == ["a/created", "a/put"]


def test_a_deleted_file_is_not_found(store: Store) -> None:
    """After delete nothing finds the file, and create may win again."""
    store.put("a/x", b"1")
    store.delete("a/x")

    assert not store.exists("a/x")
    assert store.list("") == []
    assert store.create("a/x", b"2")


def test_many_files_are_deleted_at_once(store: Store) -> None:
    """More existing files than one request takes are deleted; other files stay, and their folders can be used."""
    for path in ("a/x/1", "a/x/2", "a/y"):
        store.put(path, b"1")

    store.delete_all([f"a/x/{number}" for number in range(1_200)])
    store.delete_all([])

    assert store.list("") == ["a/y"]
    assert store.create("a/x/1", b"2")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/etc/passwd",
        "../x",
        "a/../../x",
        "a/..",
        "./x",
        "a//b",
        "a/",
        ".incoming/x",
        "a/.x",
        "a\0b",
        "a\\b",
        "\ud800",
    ],
)
def test_a_path_that_could_leave_the_store_is_refused(store: Store, path: str) -> None:
    """Absolute paths, `..`, hidden names and what cannot be a name are refused by every method."""
    calls: list[Callable[[], object]] = [
        lambda: store.put(path, b""),
        lambda: store.create(path, b""),
        lambda: store.get(path),
        lambda: store.open(path),
        lambda: store.exists(path),
        lambda: store.delete(path),
        lambda: store.list(path + "/x"),
    ]
    for call in calls:
        with pytest.raises(StoreError, match="is not a path of a file"):
            call()

    assert store.list("") == []


@pytest.mark.parametrize("method", ["put", "create"])
def test_a_write_that_stops_anywhere_leaves_all_or_nothing(store: Store, method: str) -> None:
    """At whichever point a write is stopped, the file is whole or not there, and can be written afterwards."""
    write = getattr(store, method)
    count = len(points_of(lambda: write("probe/x", b"x")))
    assert count >= 2
    for number in range(count):
        path = f"a/{number}"
        stop_at(number)
        with pytest.raises(Stopped):
            write(path, b"whole")
        fault_points.install(None)

        assert store.exists(path) == (store.list(path) == [path])
        if store.exists(path):
            assert store.get(path) == b"whole"
        assert write(path, b"again") in (None, True, False)
        assert store.get(path) in (b"whole", b"again")


def test_every_call_can_be_stopped(store: Store) -> None:
    """Each method goes through the seam of faults before it does anything; writes also when they are done."""
    store.put("a/x", b"")

    assert points_of(lambda: store.get("a/x")) == ["store.get"]
    assert points_of(lambda: store.open("a/x").close()) == ["store.open"]
    assert points_of(lambda: store.exists("a/x")) == ["store.exists"]
    assert points_of(lambda: store.list("a")) == ["store.list"]
    for name, call in {
        "store.put": lambda: store.put("a/x", b""),
        "store.create": lambda: store.create("a/y", b""),
        "store.delete": lambda: store.delete("a/x"),
    }.items():
        points = points_of(call)
        assert (points[0], points[-1]) == (name, f"{name}.done")


def test_free_bytes_is_a_number_or_unknown(store: Store) -> None:
    """The free space is known where there is a limit, also before anything was written."""
    free = store.free_bytes()

    assert free is None or free > 0


OLD = "outcomes/date=2026-01-31/00000000-0000-7000-8000-000000000001/0-1-1.parquet"


def test_a_file_within_another_is_read_under_its_own_path(store: Store) -> None:
    """A compacted file has its old path, size and bytes, at any position."""
    whole = "compacted/outcomes/date=2026-01-31/whole.parquet"
    store.put(whole, b"before" + b"0123456789" + b"after")
    write_list(store, layout.compacted_list("2026-01-31", "outcomes", "list"), [CompactedFile(OLD, whole, 6, 10, 0)])
    compacted = CompactedStore(store)

    with compacted.open(OLD) as file:
        assert (file.size(), file.read(4), file.tell()) == (10, b"0123", 4)
        assert (file.read(), file.read_at(3, 6)) == (b"456789", b"678")
        file.seek(-2, 2)
        assert file.read(100) == b"89"
    assert (compacted.get(OLD), compacted.exists(OLD), compacted.stored_paths([OLD, whole])) == (
        b"0123456789",
        True,
        {whole},
    )


def test_a_file_of_its_own_wins_over_one_within_another(store: Store) -> None:
    """A file that a repair writes again is read in place of its compacted bytes."""
    whole = "compacted/outcomes/date=2026-01-31/whole.parquet"
    store.put(whole, b"damaged")
    write_list(store, layout.compacted_list("2026-01-31", "outcomes", "list"), [CompactedFile(OLD, whole, 0, 7, 0)])
    store.put(OLD, b"repaired")
    compacted = CompactedStore(store)

    assert compacted.get(OLD) == b"repaired"
    compacted.delete(OLD)
    assert compacted.get(OLD) == b"damaged"


@pytest.mark.parametrize("present", ["a", "b"])
def test_a_file_that_two_lists_name_is_read_where_its_bytes_are(store: Store, present: str) -> None:
    """A compaction that died has written a list without its larger file; the next one may make another."""
    places = {name: f"compacted/outcomes/date=2026-01-31/{name}.parquet" for name in ("a", "b")}
    for name, whole in places.items():
        write_list(store, layout.compacted_list("2026-01-31", "outcomes", name), [CompactedFile(OLD, whole, 1, 5, 0)])
    store.put(places[present], b"-bytes-")
    compacted = CompactedStore(store)

    with compacted.open(OLD) as file:
        assert file.read() == b"bytes"
    found = compacted.find(OLD)
    assert found is not None
    assert compacted.stored_paths([OLD]) == {found.file} == {places[present]}


def test_a_compacted_file_that_is_lost_is_missing_under_its_own_path(store: Store) -> None:
    """If the larger file is lost, the error names the path that the reader asked for."""
    files = [CompactedFile(OLD, "compacted/outcomes/date=2026-01-31/whole.parquet", 0, 7, 0)]
    write_list(store, layout.compacted_list("2026-01-31", "outcomes", "list"), files)
    compacted = CompactedStore(store)

    assert not compacted.exists(OLD)
    with pytest.raises(StoreFileMissing, match=OLD):
        compacted.open(OLD)


def test_a_list_that_is_written_later_is_found(store: Store) -> None:
    """An open store finds files that are compacted later."""
    compacted = CompactedStore(store)
    whole = "compacted/outcomes/date=2026-01-31/whole.parquet"
    for number in (1, 2):
        old = OLD.replace("-1.parquet", f"-{number}.parquet")
        assert not compacted.exists(old)
        store.put(whole, b"abc")
        write_list(
            store,
            layout.compacted_list("2026-01-31", "outcomes", f"list{number}"),
            [CompactedFile(old, whole, number, 1, 0)],
        )
        assert compacted.get(old) == b"abc"[number : number + 1]
