"""The ledger among threads, processes and their children: of those that do the same one wins, and none forgets."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from contracts.ledger_samples import (
    PARTITIONS,
    Clock,
    a_batch,
    a_chunk,
    a_file,
    a_pending,
    a_retry_batch,
    after,
    register,
    route,
    settle,
    some_ranges,
)
from services.postgresql import Postgresql

from eventbridge.ledger import Ledger
from eventbridge.ledger.chunks import ChunkEnd

FORK = multiprocessing.get_context("fork")
#: Two schedulers and eight workers have the ledger open at once.
RIVALS = 10


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    """Return the URL of an empty ledger in a file."""
    made = f"sqlite:///{tmp_path}/ledger.sqlite"
    Ledger.open(made, Clock()).close()
    return made


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the URL of an empty ledger in each database."""
    if request.param == "sqlite":
        yield request.getfixturevalue("file_url")
        return
    server: Postgresql = request.getfixturevalue("postgresql_server")
    made = server.new_database()
    Ledger.migrate(made)
    yield made
    server.drop_database(made)


def in_processes(work: Callable[[int], Any]) -> list[Any]:
    """Run `work` in rival processes at once and return what each returned."""
    responses = FORK.SimpleQueue()

    def run(number: int) -> None:
        try:
            responses.put((number, work(number)))
        except BaseException as error:
            responses.put((number, repr(error)))

    children = [FORK.Process(target=run, args=(number,)) for number in range(RIVALS)]
    for child in children:
        child.start()
    found = dict(responses.get() for _ in children)
    for child in children:
        child.join()
    return [found[number] for number in range(RIVALS)]


def in_threads(work: Callable[[int], Any]) -> list[Any]:
    """Run `work` in rival threads at once and return what each returned."""
    with ThreadPoolExecutor(RIVALS) as pool:
        return list(pool.map(work, range(RIVALS)))


#: The steps of a batch, in order, each of which exactly one of several may make.
STEPS: list[Callable[[Ledger, int, str], object]] = [
    lambda ledger, number, me: ledger.batches.plan(a_batch(f"batch-{number}-{me}"), some_ranges()),
    lambda ledger, number, me: ledger.files.record(a_file(batch_of(ledger), path=me), "planned"),
    lambda ledger, number, me: ledger.batches.move(batch_of(ledger), "planned", "buffered"),
    lambda ledger, number, me: ledger.chunks.publish(batch_of(ledger), after(1), [a_chunk(0, batch_of(ledger))]),
    lambda ledger, number, me: ledger.settlement.begin(batch_of(ledger)),
    lambda ledger, number, me: ledger.pending.add([a_pending(batch_id=batch_of(ledger))]),
    lambda ledger, number, me: ledger.pending.take(a_retry_batch(f"retry-{number}-{me}"), [], pending_by(ledger)),
]


def batch_of(ledger: Ledger) -> str:
    """Return the id of the batch in progress."""
    batch = ledger.batches.unfinished("flights")
    assert batch is not None
    return batch.batch_id


def pending_by(ledger: Ledger) -> list[int]:
    """Return the numbers of the rows that the batch in progress left pending."""
    return [row.pending_id for row in ledger.pending.list_for_batch(batch_of(ledger)) if row.pending_id is not None]


@pytest.mark.parametrize("run", [in_processes, in_threads], ids=["processes", "threads"])
def test_of_rivals_at_every_step_one_wins(url: str, run: Callable[[Callable[[int], Any]], list[Any]]) -> None:
    """Several processes make each step of several batches at once: one gets True, the others False."""
    rounds = 4
    gate: Any = (FORK if run is in_processes else threading).Barrier(RIVALS)

    def work(me: int) -> list[bool]:
        ledger = Ledger.open(url, Clock())
        won = []
        for number in range(rounds):
            for step in STEPS:
                gate.wait(60)
                won.append(bool(step(ledger, number, str(me))))
            batch_id = batch_of(ledger)
            gate.wait(60)
            won.append(ledger.settlement.commit(batch_id, "flights", [], after(1), "000000"))
            gate.wait(60)
        ledger.close()
        return won

    responses = run(work)

    assert [sum(step) for step in zip(*responses, strict=True)] == [1] * rounds * (len(STEPS) + 1)


def test_every_claim_is_a_number_of_its_own(url: str) -> None:
    """However many claim one chunk, no two of them hold the same claim, so that one at most can end it."""
    ledger = Ledger.open(url, Clock())
    route(ledger)
    each = 10

    def work(me: int) -> list[int]:
        rival = Ledger.open(url, Clock())
        claims = [rival.chunks.claim("batch-1", 0, f"host:{me}") for _ in range(each)]
        return [chunk.claim for chunk in claims if chunk is not None]

    claims = [claim for response in in_processes(work) for claim in response]

    assert sorted(claims) == list(range(1, RIVALS * each + 1))
    assert [
        ledger.chunks.end("batch-1", 0, claim, ChunkEnd("completed", 0, 0)) for claim in range(1, RIVALS * each + 1)
    ] == [False] * (RIVALS * each - 1) + [True]


def test_no_segment_slips_past_settlement(url: str) -> None:
    """While workers record segments another begins settlement: each recorded segment is among those frozen."""
    ledger = Ledger.open(url, Clock())
    route(ledger, chunks=RIVALS)

    def work(me: int) -> list[str]:
        rival = Ledger.open(url, Clock())
        if me == 0:
            while len(rival.files.list_for_batch("batch-1", "outcome")) < 15:
                time.sleep(0.001)
            assert rival.settlement.begin("batch-1")
            return [file.key for file in rival.files.list_for_batch("batch-1", "outcome")]
        chunk = rival.chunks.claim("batch-1", me, f"host:{me}")
        recorded: list[str] = []
        while chunk is not None and rival.chunks.record_segment(
            a_file(key=f"{me}-{len(recorded)}", kind="outcome", detail=None), me, chunk.claim
        ):
            recorded.append(f"{me}-{len(recorded)}")
        return recorded

    frozen, *recorded = in_processes(work)

    assert sorted(frozen) == sorted(key for keys in recorded for key in keys)
    assert len(frozen) >= 15


def test_pending_rows_are_taken_once(url: str) -> None:
    """Planners that want overlapping rows: each row goes to one batch, and each batch has all that it asked for."""
    ledger = Ledger.open(url, Clock())
    settle(ledger)
    ledger.pending.add([a_pending(number) for number in range(60)])

    def work(me: int) -> dict[str, list[int]]:
        rival = Ledger.open(url, Clock())
        wanted = {f"retry-{me}-{first}": list(range(first, first + 3)) for first in range(1 + me, 58, 2)}
        return {
            batch_id: ids for batch_id, ids in wanted.items() if rival.pending.take(a_retry_batch(batch_id), [], ids)
        }

    won = {batch_id: ids for response in in_processes(work) for batch_id, ids in response.items()}

    assert max(Counter(number for ids in won.values() for number in ids).values()) == 1
    assert {batch_id: [row.pending_id for row in ledger.pending.list_taken_by(batch_id)] for batch_id in won} == won
    assert {batch.batch_id for batch in ledger.batches.find(limit=1000)} == {"batch-1", *won}


def test_of_a_shard_one_planner_takes_rows(url: str) -> None:
    """Planners that want different rows of one order shard at the same moment: one gets its row, in every round."""
    ledger = Ledger.open(url, Clock())
    settle(ledger)
    rounds = 8
    ledger.pending.add([a_pending(number, order_shard=number // RIVALS) for number in range(rounds * RIVALS)])
    gate = FORK.Barrier(RIVALS)

    def work(me: int) -> list[bool]:
        rival = Ledger.open(url, Clock())
        won = []
        for shard in range(rounds):
            gate.wait(60)
            won.append(rival.pending.take(a_retry_batch(f"retry-{shard}-{me}"), [], [shard * RIVALS + me + 1]))
        return won

    assert [sum(each) for each in zip(*in_processes(work), strict=True)] == [1] * rounds


def test_many_may_make_one_ledger(tmp_path: Path) -> None:
    """Processes that open a ledger which is not there yet all get the same one, without an error."""
    for number in range(5):
        made = f"sqlite:///{tmp_path}/ledger-{number}.sqlite"
        gate = FORK.Barrier(RIVALS)

        def work(me: int, made: str = made, gate: Any = gate) -> str:
            gate.wait(60)
            return Ledger.open(made).id

        ids = in_processes(work)

        assert len(set(ids)) == 1, ids
        assert len(ids[0]) == 36


def test_threads_may_share_a_ledger(url: str) -> None:
    """One opening serves several threads: the rows of each are stored, and no transaction sees half of another."""
    ledger = Ledger.open(url, Clock())
    route(ledger, chunks=RIVALS)

    def work(me: int) -> bool:
        for number in range(20):
            chunk = ledger.chunks.claim("batch-1", me, f"thread:{me}")
            assert chunk is not None
            assert (chunk.chunk_id, chunk.claim, chunk.worker) == (me, number + 1, f"thread:{me}")
            assert ledger.chunks.record_segment(a_file(key=f"{me}-{number}", kind="outcome"), me, chunk.claim)
            assert len(ledger.chunks.list_for_batch("batch-1")) == RIVALS
        return True

    assert in_threads(work) == [True] * RIVALS
    assert len(ledger.files.list_for_batch("batch-1", "outcome")) == RIVALS * 20


def test_a_child_loses_nothing_when_its_parent_closes(url: str) -> None:
    """Rows that a forked child commits after its parent has closed the ledger are stored.

    SQLite counts the locks of a file by process in memory that a fork copies: with the parent's connection open
    across the fork the child took no lock of its own, so the parent, taking itself for the last one, threw away
    the log that the child went on writing to.
    """
    ledger = Ledger.open(url, Clock())
    register(ledger)
    written, write_end = os.pipe()
    go_on, go_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            ledger.batches.plan(a_batch(), [])
            os.write(write_end, b".")
            os.read(go_on, 1)
            ledger.batches.move("batch-1", "planned", "buffered")
        finally:
            os._exit(0)
    os.read(written, 1)
    ledger.close()
    os.write(go_end, b".")
    os.waitpid(child, 0)
    for end in (written, write_end, go_on, go_end):
        os.close(end)

    assert [batch.state for batch in Ledger.open(url, Clock()).batches.find()] == ["buffered"]


def test_parent_and_child_go_on_with_the_ledger(url: str) -> None:
    """After a fork both use the ledger object they have, each by a connection of its own."""
    ledger = Ledger.open(url, Clock())
    register(ledger)
    child = os.fork()
    if child == 0:
        won = ledger.batches.plan(a_batch("batch-child", runner="child"), [])
        os._exit(0 if won and ledger.offsets.committed("flights")[PARTITIONS[0]] == 10 else 1)
    assert ledger.batches.plan(a_batch("batch-parent", runner="parent"), [])
    _, status = os.waitpid(child, 0)

    assert status == 0
    assert {batch.batch_id for batch in ledger.batches.find()} == {"batch-parent", "batch-child"}


def test_a_fork_waits_for_the_transactions_of_other_threads(url: str) -> None:
    """A fork amid another thread's transaction neither inherits it nor breaks it, and the child is not stuck."""
    ledger = Ledger.open(url, Clock())
    inside, done = threading.Event(), threading.Event()

    def work() -> None:
        with ledger.database.writing() as connection:
            inside.set()
            done.wait(0.2)  # the time in which the other thread reaches its fork
            connection.exec_driver_sql("UPDATE ledger SET ledger_id = 'changed'")

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if ledger.id == "changed" and ledger.batches.plan(a_batch(), []) else 1)
    _, status = os.waitpid(child, 0)
    thread.join()

    assert status == 0
    assert ledger.id == "changed"
    assert [batch.batch_id for batch in ledger.batches.find()] == ["batch-1"]


def test_no_commit_runs_beside_a_checkpoint(file_url: str, tmp_path: Path) -> None:
    """A writer has its turn from before its transaction until after the checkpoint that its commit may make.

    SQLite before 3.51.3 can lose committed pages otherwise (https://sqlite.org/wal.html#walresetbug).
    """
    ledger = Ledger.open(file_url, Clock())
    turn = tmp_path / "ledger.sqlite.lock"
    seen: list[tuple[str, bool]] = []

    with ledger.database.reading() as connection:
        raw: Any = connection.connection.dbapi_connection
        raw.set_trace_callback(lambda statement: seen.append((statement, is_taken(turn))))
    ledger.batches.plan(a_batch(), [])
    taken, written = dict(seen), len(seen)
    ledger.batches.find()

    assert taken["BEGIN IMMEDIATE"]
    assert taken["COMMIT"]
    assert not is_taken(turn)
    assert len(seen) > written
    assert not any(of_reader for _, of_reader in seen[written:])


def is_taken(turn: Path) -> bool:
    """Return whether a writer holds the lock."""
    with turn.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
