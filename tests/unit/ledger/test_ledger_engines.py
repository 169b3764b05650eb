"""The seam between the ledger and its database: one registry, one clock, nothing of a database outside its engine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType

import pytest
from contracts.ledger_samples import START, a_retry_batch, settle
from sqlalchemy import URL

import eventbridge.ledger
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.ledger import Ledger
from eventbridge.ledger.engines import registry
from eventbridge.ledger.engines.postgresql import PostgresqlEngine
from eventbridge.ledger.engines.protocol import LedgerEngine
from eventbridge.ledger.engines.sqlite import SqliteEngine
from eventbridge.pipeline.retry.plan import settle_stale
from eventbridge.rules import RuleSet
from eventbridge.runtime.open import open_runtime
from eventbridge.store.rule_sets import freeze_rules

LEDGER = Path(str(eventbridge.ledger.__file__)).parent

_HOSTS_CLOCKS = ("datetime.now", "datetime.utcnow", "datetime.today", "time.time", "time.time_ns")

#: The interface of a database engine; an addition needs an implementation in every engine.
SEAM = {
    "url",
    "spans_hosts",
    "migrates_when_opened",
    "begin_writing",
    "begin_reading",
    "bounds_readers",
    "remedies",
    "connect",
    "turn_to_write",
    "drop_old_pages",
    "migrating",
    "last_number",
    "count_on",
    "may_run_again",
    "now",
    "is_full",
    "reader",
}


class ServerClock(SqliteEngine):
    """A database whose clock is not that of the host: as a server's that runs elsewhere."""

    time = START

    def now(self) -> datetime:
        """Return the server's time."""
        return type(self).time


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[ServerClock]]:
    """Have ledgers kept in a database with a clock of its own."""
    monkeypatch.setattr(registry, "ENGINES", MappingProxyType({"sqlite": ServerClock}))
    yield ServerClock
    ServerClock.time = START


@pytest.mark.parametrize(
    "engine",
    [
        SqliteEngine(URL.create("sqlite", database="/never/made.sqlite"), 1.0),
        PostgresqlEngine(URL.create("postgresql", host="nowhere.invalid"), 1.0),
    ],
    ids=lambda engine: engine.url.drivername,
)
def test_the_seam_is_what_it_is(engine: LedgerEngine) -> None:
    """An engine is asked for these things and no others, and has all of them."""
    asked = {name for name in vars(LedgerEngine) if not name.startswith("_")} | set(LedgerEngine.__annotations__)

    assert asked == SEAM
    assert all(hasattr(engine, name) for name in SEAM)


@pytest.mark.parametrize(
    "file",
    [file for file in sorted(LEDGER.rglob("*.py")) if not {"engines", "migrations"} & set(file.parts)],
    ids=lambda file: file.name,
)
def test_only_its_engine_knows_a_database(file: Path) -> None:
    """Outside the engines and the migrations no code names a database, but what the definitions of tables share."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names = [getattr(node, name, None) for name in ("id", "attr", "module", "name", "arg")]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value:
            names.append(node.value)
        found |= {
            name for name in names if name and any(kind in name.lower() for kind in ("sqlite", "postgres", "pragma"))
        }

    assert (
        file.name == "definitions.py" or {name for name in found if not name.endswith(".")} == set()
    )  # but for docstrings


def test_times_are_compared_by_the_databases_clock(server: type[ServerClock], tmp_path: Path) -> None:
    """Two hosts with different clocks agree on the holder of a lease: both ask the database for the time."""
    one, other = (Ledger.open(f"sqlite:///{tmp_path}/ledger.sqlite") for _ in range(2))
    until = one.now() + timedelta(seconds=30)

    assert one.order.acquire_lease("late", "crm", 0, "one", until)
    assert not other.order.acquire_lease("late", "crm", 0, "other", until)
    server.time = until
    assert other.order.acquire_lease("late", "crm", 0, "other", until + timedelta(seconds=30))
    one.close()
    other.close()


def test_stages_use_the_ledgers_clock(server: type[ServerClock], tmp_path: Path) -> None:
    """A stage that is given no clock has the ledger's: a batch is past its deadline when the database says so."""
    settings = Settings(home=tmp_path, rules_folder=tmp_path)
    runtime = open_runtime(settings, connections_from_environment({}))
    settle(runtime.ledger)
    assert runtime.ledger.pending.take(a_retry_batch(rule_set=freeze_rules(runtime.store, RuleSet())), [], [])

    assert runtime.clock() == START
    assert settle_stale(runtime) == []
    server.time = START + timedelta(minutes=2)
    assert settle_stale(runtime) == ["retry-1"]
    runtime.close()


_ROOMS_WITH_A_CLOCK = (
    "airflow",
    "policy",
    "backtest",
    "control",
    "dead_letters",
    "delivery",
    "pipeline",
    "quality",
    "repair",
    "replay",
    "runtime",
    "streaming",
    "upkeep",
    "views",
)


def test_no_stage_reads_the_hosts_clock() -> None:
    """Stages, and Airflow's part of us, have the time from their runtime; a monotonic clock only measures durations."""
    found = []
    for package in _ROOMS_WITH_A_CLOCK:
        for file in (LEDGER.parent / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Attribute) and ast.unparse(node) in _HOSTS_CLOCKS:
                    found.append(f"{file.name}:{node.lineno}")

    assert found == []


def test_a_clock_that_is_given_is_the_ledgers_and_the_stages(tmp_path: Path) -> None:
    """Tests, and replays of what happened, say what the time is: to the ledger and to all stages at once."""
    settings = Settings(home=tmp_path, rules_folder=tmp_path)
    runtime = open_runtime(settings, connections_from_environment({}), lambda: START)

    assert (runtime.clock(), runtime.ledger.now()) == (START, START)
    runtime.close()
