"""A ledger on a PostgreSQL server: rights to migrate it, its own settings, and its error messages."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from contracts.ledger_samples import Clock, a_batch, register, some_ranges
from services.postgresql import Postgresql
from sqlalchemy import create_engine
from sqlalchemy.exc import InternalError, OperationalError
from unit.ledger.newer_revision import add_revision

from eventbridge.errors import LedgerError, SettingsError
from eventbridge.ledger import Ledger
from eventbridge.ledger.chunks import PLACEMENTS_OF_RUNNER
from eventbridge.ledger.definitions import metadata
from eventbridge.ledger.engines import postgresql
from eventbridge.ledger.engines.registry import engine_of
from eventbridge.ledger.revision import HEAD

pytestmark = pytest.mark.usefixtures("migrated")


@pytest.fixture
def empty(postgresql_server: Postgresql) -> Iterator[str]:
    """Yield the URL of a database without tables."""
    url = postgresql_server.new_database()
    yield url
    postgresql_server.drop_database(url)


@pytest.fixture
def url(empty: str) -> str:
    """Return the URL of an empty ledger."""
    Ledger.migrate(empty)
    return empty


def tables_of(url: str) -> set[str]:
    """Return the tables of a database."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    return {name for (name,) in rows}


def test_opening_a_database_without_tables_names_the_command(empty: str) -> None:
    """Nothing is made in passing: on a server only the command migrates."""
    with pytest.raises(LedgerError, match=r"has no tables yet. Run `eventbridge ledger migrate`"):
        Ledger.open(empty)

    assert tables_of(empty) == set()


def test_a_migration_is_reported_and_may_be_repeated(empty: str) -> None:
    """The first time the tables are made, the second time nothing is."""
    assert Ledger.migrate(empty) == (None, HEAD)
    first = Ledger.open(empty).id

    assert Ledger.migrate(empty) == (HEAD, HEAD)
    assert Ledger.open(empty).id == first


def test_only_the_command_migrates_an_older_ledger(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening names the revision that it has and the one that is needed; the command keeps its rows."""
    ledger = Ledger.open(url)
    ledger_id = ledger.id
    ledger.close()
    newest = add_revision(tmp_path / "migrations", monkeypatch)

    with pytest.raises(LedgerError, match=f"has revision {HEAD}, but this version needs {newest}. Run `"):
        Ledger.open(url)
    assert "newer" not in columns_of_batch(url)
    assert Ledger.migrate(url) == (HEAD, newest)
    assert "newer" in columns_of_batch(url)
    assert Ledger.open(url).id == ledger_id


def columns_of_batch(url: str) -> set[str]:
    """Return the columns of the table `batch`."""
    query = "SELECT column_name FROM information_schema.columns WHERE table_name = 'batch'"
    with psycopg.connect(url) as connection:
        return {name for (name,) in connection.execute(query)}


def test_the_previous_version_works_beside_a_newer_one(url: str) -> None:
    """A newer version that only added tables and columns has migrated: this one opens the ledger and uses it."""
    with psycopg.connect(url) as connection:
        connection.execute("ALTER TABLE batch ADD COLUMN newer text NOT NULL DEFAULT ''")
        connection.execute("UPDATE ledger_revision SET version_num = '9999'")

    ledger = Ledger.open(url)

    assert ledger.batches.plan(a_batch(), some_ranges())
    assert [batch.batch_id for batch in ledger.batches.find()] == ["batch-1"]
    ledger.close()


def test_a_ledger_of_a_newer_version_is_refused(url: str) -> None:
    """One that no longer serves this version: opening and migrating both say so, and change nothing."""
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE ledger_revision SET version_num = '9999'")
        connection.execute("UPDATE ledger SET serves_from = '9999'")

    for act in (Ledger.open, Ledger.migrate):
        with pytest.raises(LedgerError, match=r"has revision 9999.*newer version"):
            act(url)


def test_another_programs_database_is_refused(empty: str) -> None:
    """Its tables are named, and stay alone."""
    with psycopg.connect(empty) as connection:
        connection.execute("CREATE TABLE dag_run (id int)")

    with pytest.raises(LedgerError, match="another program's tables \\(dag_run\\)"):
        Ledger.migrate(empty)
    assert tables_of(empty) == {"dag_run"}


def test_a_database_of_another_encoding_is_refused(postgresql_server: Postgresql) -> None:
    """Names and messages are Unicode, so the database must be."""
    url = postgresql_server.new_database(of="template0", encoding="SQL_ASCII")

    with pytest.raises(LedgerError, match="the encoding of its database is SQL_ASCII"):
        Ledger.migrate(url)
    postgresql_server.drop_database(url)


def test_the_migrations_make_the_tables_that_the_statements_use(url: str) -> None:
    """Alembic finds no difference between a migrated ledger and tables.py."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        options = {"compare_type": True, "version_table": "ledger_revision"}
        differences = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    engine.dispose()

    assert differences == []


def test_text_is_compared_byte_by_byte(url: str) -> None:
    """Whatever the database's locale is: order is that of the other database, and of Python."""
    with psycopg.connect(url) as connection:
        other = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public' "
            "AND data_type IN ('text', 'character varying') AND collation_name IS DISTINCT FROM 'C'"
        ).fetchall()

    assert other == []


def test_isolation_is_the_ledgers_and_not_the_servers(url: str) -> None:
    """Writers see what is committed by each statement, readers one moment, whatever the database's default is."""
    with psycopg.connect(url, autocommit=True) as connection:
        name = url.rpartition("/")[2]
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    ledger = Ledger.open(url)

    with ledger.database.writing() as transaction:
        written = transaction.exec_driver_sql("SHOW transaction_isolation").scalar()
    with ledger.database.reading() as transaction:
        read = transaction.exec_driver_sql("SHOW transaction_isolation").scalar()
        only = transaction.exec_driver_sql("SHOW transaction_read_only").scalar()

    assert (written, read, only) == ("read committed", "repeatable read", "on")
    assert ledger.batches.plan(a_batch(), [])
    ledger.close()


def test_a_plan_waits_for_the_commit_before_it_and_sees_its_offsets(url: str) -> None:
    """A batch of the old ranges, asked for before the commit of the one that took them, is refused after it.

    This is what the isolation of writers is pinned for: by the snapshot of its own beginning it would be planned.
    """
    one, other = Ledger.open(url, Clock()), Ledger.open(url, Clock())
    register(one)
    assert one.batches.plan(a_batch(), some_ranges())
    for before, after in (("planned", "buffered"), ("buffered", "routed"), ("routed", "settling")):
        assert one.batches.move("batch-1", before, after)
    with other.database.writing() as transaction:
        transaction.exec_driver_sql("SELECT count(*) FROM batch").scalar()  # a snapshot of its own would be this one
        assert one.settlement.commit("batch-1", "flights", some_ranges(), one.now(), "000000")
        transaction.exec_driver_sql("SELECT 1")
        seen = transaction.exec_driver_sql('SELECT max("offset") FROM consumer_offset').scalar()

    assert seen == 20
    assert not other.batches.plan(a_batch("batch-2"), some_ranges())
    one.close()
    other.close()


def test_the_time_is_the_servers(url: str) -> None:
    """It is near the host's here, aware and in UTC, and continues without a question to the server."""
    ledger = Ledger.open(url)
    first = ledger.now()
    ledger.close()
    begun = time.perf_counter()
    times = [ledger.now() for _ in range(10_000)]

    assert time.perf_counter() - begun < 1
    assert times == sorted(times)
    assert first <= times[0]
    assert first.tzinfo is UTC
    assert abs((first - datetime.now(UTC)).total_seconds()) < 5


def test_a_lock_of_another_session_is_reported(url: str) -> None:
    """After the busy timeout: what to look at, and nothing was changed."""
    ledger = Ledger.open(url, busy_timeout_seconds=0.2)
    assert ledger.batches.plan(a_batch(), [])
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE batch SET state = 'buffered'")

        with pytest.raises(LedgerError, match=r"lock timeout.*pg_stat_activity"):
            ledger.batches.move("batch-1", "planned", "routed")
        connection.rollback()

    assert ledger.batches.move("batch-1", "planned", "routed")
    ledger.close()


def test_a_statement_that_takes_too_long_is_reported(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that hangs in the middle of one: what to look at, and nothing was changed."""
    monkeypatch.setattr(postgresql, "_STATEMENT_SECONDS", 0.2)
    ledger = Ledger.open(url, busy_timeout_seconds=0.2)
    assert ledger.batches.plan(a_batch(), [])
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END';"
            "CREATE TRIGGER hangs BEFORE UPDATE ON batch FOR EACH ROW EXECUTE FUNCTION hang()"
        )

    with pytest.raises(LedgerError, match=r"statement timeout.*pg_stat_activity"):
        ledger.batches.move("batch-1", "planned", "routed")
    assert ledger.batches.get("batch-1").state == "planned"
    ledger.close()


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (("/t", "/no-such-t"), "does not exist. Create the database on its server"),
        (("postgres@", "nobody:secret@"), 'role "nobody" does not exist. Create the user on the server'),
        (("127.0.0.1", "no-such-host.invalid"), "Correct the host in EVENTBRIDGE_LEDGER_URL"),
    ],
    ids=["database", "user", "host"],
)
def test_a_failed_connection_is_reported_at_once(url: str, change: tuple[str, str], reported: str) -> None:
    """Each error has its remedy, and no password is shown."""
    begun = time.monotonic()
    with pytest.raises(LedgerError, match=re.escape(reported)) as refused:
        Ledger.open(url.replace(*change))

    assert "secret" not in str(refused.value)
    assert time.monotonic() - begun < 4


def test_a_missing_server_is_waited_for_and_reported() -> None:
    """For as long as is asked: then which command shows whether it is up."""
    with pytest.raises(LedgerError, match=r"Connection refused.*pg_isready -h 127.0.0.1 -p 1"):
        Ledger.open("postgresql://me:secret@127.0.0.1:1/db", busy_timeout_seconds=0.1)


@pytest.mark.parametrize("bad", ["mysql://u:secret@h/d", "nonsense", "postgresql://me:secret@host:port/db"])
def test_a_url_that_names_no_ledger_says_what_does(bad: str) -> None:
    """Both kinds of URL are named."""
    with pytest.raises(SettingsError, match="postgresql://<user>"):
        Ledger.open(bad)


def test_a_reader_cannot_change_the_ledger_and_waits_for_no_writer(url: str) -> None:
    """As Airflow's scheduler asks it, which must not be held up."""
    pool = engine_of(url).reader(0.2)
    with psycopg.connect(url) as other, pool.connect() as reading:
        other.execute("LOCK TABLE batch IN ACCESS EXCLUSIVE MODE")
        begun = time.monotonic()
        with pytest.raises(OperationalError, match="timeout"):
            reading.execute(PLACEMENTS_OF_RUNNER, {"of_runner": "flights"})
        other.rollback()

        assert time.monotonic() - begun < 2
        assert reading.execute(PLACEMENTS_OF_RUNNER, {"of_runner": "flights"}).all() == []
        with pytest.raises(InternalError, match="read-only transaction"):
            reading.exec_driver_sql("DELETE FROM batch")
