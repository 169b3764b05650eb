"""A ledger whose server restarts, or breaks off its sessions: what surely did not commit is run again, once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from contracts.ledger_samples import Clock, a_batch, a_chunk, a_pending, a_retry_batch, after, register, settle
from services.postgresql import Postgresql, postgresql
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError

from eventbridge import fault_points
from eventbridge.errors import LedgerError
from eventbridge.ledger import Ledger
from eventbridge.ledger.database import Aggregate, runs_lost_transactions_again
from eventbridge.ledger.definitions import microseconds
from eventbridge.ledger.engines.postgresql import PostgresqlEngine


@pytest.fixture
def url(postgresql_server: Postgresql) -> Iterator[str]:
    """Yield the URL of an empty ledger."""
    made = postgresql_server.new_database()
    Ledger.migrate(made)
    yield made
    postgresql_server.drop_database(made)


@pytest.fixture(scope="module")
def mortal() -> Iterator[Postgresql]:
    """Yield a server of this module's own, which its tests may end."""
    with postgresql() as server:
        yield server


def break_off(url: str) -> None:
    """End every other session of a database, as a restart does."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def at(number: int, act: Callable[[], object]) -> Callable[[str], None]:
    """Return a hook that acts when the `number`-th point is reached."""
    left = iter(range(number))
    done = iter([True])

    def hook(point: str) -> None:
        if next(left, None) is None and next(done, None):
            act()

    return hook


def prepared(ledger: Ledger) -> None:
    """Have a batch that left two rows pending."""
    register(ledger)
    settle(ledger)
    ledger.pending.add([a_pending(1), a_pending(2)])


def taken(ledger: Ledger) -> bool:
    """Plan a batch of both rows, which is as many statements as any transaction of the ledger has."""
    return ledger.pending.take(a_retry_batch(), [a_chunk(0, "retry-1")], [1, 2])


def test_a_transaction_that_was_lost_is_run_again(url: str) -> None:
    """Sessions are ended at the n-th point of a change, for every n: it is made once, and the caller notices nothing.

    Only at the commit itself, whose response is lost, does the caller get an error; the change may be stored or not.
    """
    ledger = Ledger.open(url, Clock())
    prepared(ledger)
    points: list[str] = []
    fault_points.install(points.append)
    assert taken(ledger)
    fault_points.install(None)

    for number, point in enumerate(points):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE pending SET taken_by = NULL")
            connection.execute("DELETE FROM delivery_chunk WHERE batch_id = 'retry-1'")
            connection.execute("DELETE FROM batch WHERE batch_id = 'retry-1'")
        fault_points.install(at(number, lambda: break_off(url)))
        if point == "ledger.commit":
            with pytest.raises(LedgerError, match="terminating connection"):
                taken(ledger)
        else:
            assert taken(ledger), point
        fault_points.install(None)
        found = [batch.batch_id for batch in ledger.batches.find()]

        assert sorted(found) in (["batch-1", "retry-1"], ["batch-1"] if point == "ledger.commit" else [])
        assert len(ledger.pending.list_taken_by("retry-1")) == 2 * (len(found) - 1)
    ledger.close()


def test_every_public_method_is_run_again(tmp_path: Path) -> None:
    """No method of an attribute of the ledger is without it, whatever is added to the ledger."""
    ledger = Ledger.open(f"sqlite:///{tmp_path}/ledger.sqlite")
    parts = [part for part in vars(ledger).values() if isinstance(part, Aggregate)]
    public = [value for part in parts for name, value in vars(type(part)).items() if not name.startswith("_")]

    assert len(parts) == len(vars(ledger)) - 1  # but for the database itself
    assert len(public) > 200
    assert all(hasattr(value, "__wrapped__") for value in public)
    ledger.close()


@pytest.mark.parametrize(
    ("said", "lost"),
    [
        ("connection socket closed", True),
        ("sending query failed: another command is already in progress", True),
        ('password authentication failed for user "anna"', False),
        ("canceling statement due to statement timeout", False),
    ],
)
def test_a_connection_that_psycopg_finds_closed_first_is_lost(said: str, lost: bool) -> None:
    """SQLAlchemy knows only what libpq knows; what was refused is not lost."""
    engine = PostgresqlEngine(make_url("postgresql://127.0.0.1/none"), 1.0)

    assert engine.may_run_again(OperationalError("SELECT 1", None, psycopg.OperationalError(said))) is lost


def test_a_ledger_continues_after_a_restart(mortal: Postgresql) -> None:
    """The server was ended and started between two transactions: the second one finds it, by a new connection."""
    url = mortal.new_database()
    Ledger.migrate(url)
    ledger = Ledger.open(url, Clock())
    assert ledger.batches.plan(a_batch(), [])

    mortal.restart()

    assert ledger.batches.move("batch-1", "planned", "buffered")
    mortal.kill()
    mortal.start()
    assert ledger.batches.get("batch-1").state == "buffered"
    ledger.close()


def test_a_server_that_is_away_is_waited_for(mortal: Postgresql) -> None:
    """A change that is asked for while the server is down is made when it is up again."""
    url = mortal.new_database()
    Ledger.migrate(url)
    ledger = Ledger.open(url, Clock())
    mortal.end()

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ledger.batches.plan, a_batch(), [])
        mortal.start()

        assert asked.result(60)
    assert ledger.batches.plan(a_batch("batch-2", runner="other"), [])
    ledger.close()


def test_of_two_that_wait_for_each_other_both_get_there(url: str) -> None:
    """The server undoes one of two transactions that lock the same rows in different order; it is run again."""
    one, other = Ledger.open(url, Clock()), Ledger.open(url, Clock())
    for number in (1, 2):
        assert one.batches.plan(a_batch(f"batch-{number}", runner=f"runner-{number}"), [])
    first_locks = threading.Barrier(2)
    met = threading.local()

    def meet(point: str) -> None:
        """Have both wait, once, between the first lock and the second."""
        met.points = [*getattr(met, "points", []), point]
        if met.points.count("ledger.execute") == 2 and not getattr(met, "done", False):
            met.done = True
            first_locks.wait(30)

    fault_points.install(meet)
    with ThreadPoolExecutor(2) as pool:
        moved = [pool.submit(crosswise, one, 1, 2), pool.submit(crosswise, other, 2, 1)]
        assert [each.result(60) for each in moved] == [True, True]
    fault_points.install(None)
    assert {batch.committed_at for batch in one.batches.find()} == {after(2)}
    one.close()
    other.close()


def crosswise(ledger: Ledger, *numbers: int) -> bool:
    """Change two batches in one transaction, in this order."""

    def change(self: Ledger) -> bool:
        with self.database.writing() as connection:
            for number in numbers:
                connection.exec_driver_sql(
                    f"UPDATE batch SET committed_at = coalesce(committed_at, {microseconds(after(0))}) + 1000000 "
                    f"WHERE batch_id = 'batch-{number}'"
                )
        return True

    return bool(runs_lost_transactions_again(change)(ledger))


def test_rows_of_an_iterator_are_written_after_a_lost_transaction(url: str) -> None:
    """Rows that a caller gives as they come are written, though the first transaction with them was lost."""
    ledger = Ledger.open(url, Clock())
    ledger.rules.put_in_force("cafe", {}, None, {})
    fault_points.install(at(1, lambda: break_off(url)))
    try:
        assert ledger.assignments.assign("flights", (pair for pair in [("late", "crm")]), "cafe")
    finally:
        fault_points.install(None)

    assert {target: found.runner for target, found in ledger.assignments.all().items()} == {("late", "crm"): "flights"}
    ledger.close()
