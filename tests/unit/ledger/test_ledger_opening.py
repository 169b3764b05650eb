"""Opening a ledger: how it is made and set, and what is refused."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from contracts.ledger_samples import a_batch
from unit.ledger.ledger_file import url

from eventbridge.errors import LedgerError, SettingsError
from eventbridge.ledger import Ledger


def test_a_ledger_of_today_opens_without_alembic(file: Path) -> None:
    """Opening an up-to-date ledger imports no migration tool and takes at most 30 ms of this process."""
    program = (
        "import sys, time\n"
        "from eventbridge.ledger import Ledger\n"
        "taken = []\n"
        "for _ in range(5):\n"
        "    start = time.process_time()\n"
        f"    Ledger.open({url(file)!r}).close()\n"
        "    taken.append(time.process_time() - start)\n"
        "print(min(taken), 'alembic' in sys.modules)\n"
    )
    response = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()

    assert response[1] == "False"
    assert float(response[0]) <= 0.030


def test_a_ledger_is_durable_by_its_settings(file: Path) -> None:
    """Commits wait for the disk, deferred matches are checked, and readers do not wait for writers."""
    ledger = Ledger.open(url(file))
    with ledger.database.reading() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    ledger.close()

    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    """A database with other tables, Airflow's for one, is not made a ledger."""
    file = tmp_path / "airflow.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE dag (dag_id TEXT)")

    with pytest.raises(LedgerError, match=r"another program's tables \(dag\).*of its own"):
        Ledger.open(url(file))
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("dag",)]
    connection.close()


def test_two_ledgers_have_two_ids(tmp_path: Path) -> None:
    """A recreated ledger is not taken for the lost one."""
    ids = {Ledger.open(url(tmp_path / name)).id for name in ("a.sqlite", "b.sqlite")}

    assert len(ids) == 2


def test_a_relative_ledger_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that changes its folder continues with the ledger it opened."""
    (tmp_path / "later").mkdir()
    monkeypatch.chdir(tmp_path)
    ledger = Ledger.open("sqlite:///ledger.sqlite")
    was = ledger.id
    ledger.close()
    monkeypatch.chdir(tmp_path / "later")

    assert ledger.id == was
    assert ledger.batches.plan(a_batch(), [])
    assert list((tmp_path / "later").iterdir()) == []
    ledger.close()


@pytest.mark.parametrize(
    ("bad", "reported"),
    [
        pytest.param("nonsense", "is not a valid URL", id="no-url"),
        pytest.param("postgresql://me:secret@host:port/db", "is not a valid URL", id="bad-port"),
        pytest.param("mysql://me:secret@host/db", r"mysql://me:\*\*\*@host/db", id="other-database"),
        pytest.param("sqlite://", "in memory is lost", id="memory"),
        pytest.param("sqlite:///:memory:", "in memory is lost", id="memory-by-name"),
    ],
)
def test_an_invalid_ledger_url_is_reported(bad: str, reported: str) -> None:
    """What is not a URL, no supported database or no durable one is refused, without showing its password."""
    with pytest.raises(SettingsError, match=reported) as refused:
        Ledger.open(bad)

    assert "secret" not in str(refused.value)
    assert "Set EVENTBRIDGE_LEDGER_URL to sqlite:///<file>" in str(refused.value)
