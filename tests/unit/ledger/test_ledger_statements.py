"""The ledger's statements: each is described, each is valid in both databases, and the frequent ones use an index."""

from __future__ import annotations

import inspect
import itertools
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from contracts.ledger_samples import START, Clock, a_pending, a_retry_batch, after, settle
from sqlalchemy import Executable, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.elements import ClauseElement

from eventbridge.ledger import (
    Ledger,
    airflow,
    api,
    archive,
    assignments,
    batches,
    chunks,
    due,
    files,
    inbox,
    offsets,
    operational_events,
    order,
    overrides,
    pending,
    quality,
    queues,
    redrives,
    replays,
    retention,
    revision,
    routing,
    rules,
    schemas,
    snapshots,
    stats,
    store,
    streaming,
    targets,
)
from eventbridge.ledger.definitions import insert, insert_or_skip, metadata
from eventbridge.policy.breaker import Count, Tally

MODULES = [
    airflow,
    api,
    archive,
    assignments,
    batches,
    chunks,
    due,
    files,
    inbox,
    snapshots,
    offsets,
    operational_events,
    order,
    overrides,
    pending,
    quality,
    queues,
    redrives,
    replays,
    retention,
    revision,
    routing,
    rules,
    schemas,
    stats,
    store,
    streaming,
    targets,
]
INSERTS = (insert, insert_or_skip)
ARGUMENTS: dict[str, list[object]] = {
    "area": ["archive"],
    "aged": [True, False],
    "undeliverable": [True, False],
    "batch_kind": [None, "normal"],
    "before": [None, 7],
    "beginning": ["01a2"],
    "behind": [True, False],
    "bus": [None, "flights"],
    "buses": [["flights"]],
    "by": [("grain", "at")],
    "committed": [True, False],
    "group": [None, "flights"],
    "hold_reason": [None, "pool closed"],
    "instead": ["", "rule disabled"],
    "kept": [["all", "manifest"]],
    "kind": ["buffer"],
    "kinds": [["retry", "redrive"]],
    "limit": [5],
    "limited": [True, False],
    "most": [2],
    "newest_first": [True, False],
    "older": [True, False],
    "on": [None, ("flights", "late")],
    "ranged": [True, False],
    "rule": [None, "late"],
    "rules": [["late"]],
    "runner": [None, "flights"],
    "scope": ["target"],
    "smallest": [True, False],
    "state": [None, "scheduled"],
    "step": [60_000_000],
    "times": [[START, after(60)]],
}


def constants(module: ModuleType) -> dict[str, ClauseElement]:
    """Return the statements of a module that are constants."""
    named = {name: value for name, value in vars(module).items() if name.isupper() and not name.startswith("_")}
    own = {name for name in named if re.search(rf"^{name} =", inspect.getsource(module), re.MULTILINE)}
    return {name: value for name, value in named.items() if isinstance(value, Executable) and name in own}


def every_statement() -> Iterator[tuple[str, ClauseElement]]:
    """Yield each statement, those that depend on filters once for each combination of them."""
    for module in MODULES:
        yield from constants(module).items()
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and name.startswith(("select_", "update_")):
                parameters = list(inspect.signature(function).parameters)
                for values in itertools.product(*(ARGUMENTS[parameter] for parameter in parameters)):
                    yield name, function(**dict(zip(parameters, values, strict=True)))


def test_every_statement_is_described() -> None:
    """Each constant has a line of description right above it."""
    missing = [
        name
        for module in MODULES
        for name in constants(module)
        if not re.search(rf"^#: \w.*\.\n{name} =", inspect.getsource(module), re.MULTILINE)
    ]

    assert missing == []
    assert sum(len(constants(module)) for module in MODULES) > 30


@pytest.mark.parametrize("dialect", [sqlite.dialect(), postgresql.dialect()], ids=lambda dialect: dialect.name)
def test_every_statement_is_valid_in_both_databases(dialect: sqlite.dialect | postgresql.dialect) -> None:
    """Each statement, table and index can be written in SQL of SQLite and of PostgreSQL."""
    written = [str(statement.compile(dialect=dialect)) for _, statement in every_statement()]
    written += [str(made(table).compile(dialect=dialect)) for table in metadata.sorted_tables for made in INSERTS]
    written += [str(CreateTable(table).compile(dialect=dialect)) for table in metadata.sorted_tables]
    indexes = [index for table in metadata.sorted_tables for index in table.indexes]
    written += [str(CreateIndex(index).compile(dialect=dialect)) for index in indexes]

    assert all(written)
    assert sum("ON CONFLICT DO NOTHING" in text for text in written) >= len(metadata.tables)
    partial = [text for text in written if text.startswith("CREATE") and " WHERE " in text]
    assert len(partial) == 34
    assert not any("?" in text or "%(" in text for text in partial)


def test_rows_that_a_transaction_depends_on_are_locked() -> None:
    """In PostgreSQL the state of a batch, a claim, and rows that are about to be taken stay as they were read."""
    written = {name: str(statement.compile(dialect=postgresql.dialect())) for name, statement in every_statement()}
    locked = {name: text.rsplit("FOR ", 1)[1] for name, text in written.items() if "FOR " in text}

    assert locked == {
        "BALANCE": "UPDATE",
        "BATCH_STATE": "SHARE",
        "CHUNK_CLAIMED": "SHARE",
        "FREE_PENDING": "UPDATE",
        "FREE_DEFERRED_MATCHES": "UPDATE",
        "KNOWN_IN_QUEUE": "UPDATE",
        "OF_RECEIPTS": "UPDATE",
        "RECEIVABLE": "UPDATE SKIP LOCKED",
        "TARGET_STATUS": "UPDATE",
        "TAKE_TURN": "UPDATE",
        "TOKENS": "UPDATE",
    }


class Backlog:
    """A ledger with pending rows, and what SQLite does to find those that are due."""

    def __init__(self, folder: Path) -> None:
        self._url = f"sqlite:///{folder}/ledger.sqlite"
        self._ledger = Ledger.open(self._url, Clock())
        settle(self._ledger)
        self._connection = sqlite3.connect(folder / "ledger.sqlite")

    def add_pending(self, count: int, first_due: float, **changes: object) -> None:
        """Add pending rows that come due one a second from `first_due` on."""
        self._ledger.pending.add([a_pending(first_due + number, **changes) for number in range(count)])

    def take(self, batch_id: str, *pending_ids: int) -> None:
        """Have a batch take rows."""
        assert self._ledger.pending.take(a_retry_batch(batch_id), [], pending_ids)

    def disable(self, target: str) -> None:
        """Note that a target of rule `late` is disabled."""
        self._ledger.targets.set_status("late", target, "disabled", "the target responded with 410")

    def open_breaker(self, target: str) -> None:
        """Have nothing sent to a target of rule `late` for half a minute."""
        self._ledger.targets.record_attempts([Tally("late", target, {int(START.timestamp()): Count(10, 10)})])
        assert self._ledger.targets.statuses()["late", target].state == "degraded"

    def plan(self, statement: ClauseElement) -> str:
        """Return SQLite's query plan."""
        return "\n".join(row[3] for row in self._connection.execute(f"EXPLAIN QUERY PLAN {self._sql(statement)}"))

    def steps(self, statement: ClauseElement) -> int:
        """Return how many instructions SQLite's machine executes for a statement."""
        executed = itertools.count()
        self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # reads the schema, which counts too
        self._connection.set_progress_handler(lambda: next(executed) < 0, 1)
        rows = self._connection.execute(self._sql(statement)).fetchall()
        self._connection.set_progress_handler(None, 1)

        assert rows != []
        return next(executed)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()
        self._ledger.close()

    def _sql(self, statement: ClauseElement) -> str:
        values = {"now": after(10), "of_rule": "late", "of_target": "crm", "because": "order", "ids": [13]}
        used = {name: value for name, value in values.items() if name in statement.compile().params}
        return str(statement.params(used).compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}))


@pytest.fixture
def backlog(tmp_path: Path) -> Iterator[Backlog]:
    """Return a ledger with rows that are due at second 10, one each to be ended for two reasons, and one not due."""
    made = Backlog(tmp_path)
    made.add_pending(5, 0)
    made.add_pending(1, 60)
    made.add_pending(1, 7, expires_at=after(8))
    made.add_pending(1, 7, hold_reason="released")
    made.add_pending(2, 7, order_shard=4)
    yield made
    made.close()


_OF_TARGET = "(rule=? AND target=?"
QUERIES = [
    pytest.param(due.FIRST_DUE, "ix_pending_scheduled (due_at<?)", id="first"),
    pytest.param(
        due.select_targets(None), f"ix_pending_scheduled_kind {_OF_TARGET} AND hold_reason=? AND runner=?", id="targets"
    ),
    pytest.param(due.select_targets("flights"), f"ix_pending_scheduled_expiry {_OF_TARGET}", id="runners-targets"),
    pytest.param(due.select_rows(5, None), f"ix_pending_scheduled_of_target {_OF_TARGET} AND due_at<?)", id="rows"),
    pytest.param(due.select_rows(5, "flights"), f"ix_pending_scheduled_of_target {_OF_TARGET}", id="runners-rows"),
    pytest.param(
        due.select_rows(5, None, undeliverable=True), f"ix_pending_scheduled_expiry {_OF_TARGET}", id="past-age"
    ),
    pytest.param(
        due.select_rows(5, None, undeliverable=True),
        f"ix_pending_scheduled_kind {_OF_TARGET} AND hold_reason>?",
        id="reasoned",
    ),
    pytest.param(due.select_rows_in_order(5), f"ix_pending_scheduled_tried {_OF_TARGET} AND due_at<?)", id="ordered"),
]


@pytest.mark.parametrize(("query", "index"), QUERIES)
def test_due_rows_are_found_by_index(backlog: Backlog, query: ClauseElement, index: str) -> None:
    """The plan searches an index of due rows up to the time asked for; nothing reads a table or an index as a whole."""
    plan = backlog.plan(query)

    assert f" INDEX {index}" in plan
    assert not re.search(r"SCAN (pending|same|behind)(?! USING)", plan), plan


@pytest.mark.parametrize("query", [case.values[0] for case in QUERIES], ids=[case.id for case in QUERIES])
def test_rows_that_are_not_due_cost_nothing(backlog: Backlog, query: ClauseElement) -> None:
    """Two thousand rows more that are due later, on hold, or of other targets do not make SQLite execute more.

    A tenth more instructions are allowed: where a row is found in an index depends on how many pages that has.
    """
    backlog.add_pending(1, 11, target="mail")
    before = backlog.steps(query)
    backlog.add_pending(1_000, 11)
    backlog.add_pending(500, 0, hold_reason="pool closed")
    backlog.add_pending(500, 11, target="mail")

    assert backlog.steps(query) <= before * 1.1


@pytest.mark.parametrize("case", ["well", "open breaker", "disabled", "ordered"])
@pytest.mark.parametrize("query", [case.values[0] for case in QUERIES], ids=[case.id for case in QUERIES])
def test_due_rows_cost_nothing(backlog: Backlog, query: ClauseElement, case: str) -> None:
    """Two thousand due rows more, whatever their target's state, do not make SQLite execute more.

    So the watcher checks five times a second whether a thousand or a million rows are due. The rows that are read one
    by one, and those of which the smallest are sought, exist before.
    """
    changes = {"order_shard": 3} if case == "ordered" else {}
    backlog.add_pending(due.FIRST_ROWS, -2_000, **changes)
    backlog.add_pending(5, 5, attempts=0, order_shard=3)
    backlog.add_pending(5, 5, order_shard=3)
    if case == "disabled":
        backlog.disable("crm")
    elif case == "open breaker":
        backlog.open_breaker("crm")
    before = backlog.steps(query)
    backlog.add_pending(500, -9_000, attempts=0, **changes)
    backlog.add_pending(1_500, -8_000, **changes)

    assert backlog.steps(query) <= before * 1.1 + 200  # instructions: the rows that it finds may be in another order


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(pending.select_waiting_targets(None), id="waiting"),
        pytest.param(pending.select_waiting_targets("flights"), id="runners-waiting"),
        pytest.param(
            select(pending.pending.c.pending_id).where(pending.RELEASE_EXPIRED.whereclause), id="release-expired"
        ),
        pytest.param(pending.TAKEN_TARGETS, id="taken-targets"),
        pytest.param(pending.SHARD_TAKEN, id="shard-taken"),
        pytest.param(order.SHARDS_TAKEN, id="shards-taken"),
        pytest.param(order.SHARDS_ON_HOLD, id="shards-on-hold"),
    ],
)
def test_pending_rows_cost_the_planning_of_a_retry_run_nothing(backlog: Backlog, query: ClauseElement) -> None:
    """Two thousand rows more of kinds that wait already, and nothing that is asked of the ledger takes longer for it.

    A tenth more instructions are allowed: where a row is found in an index depends on how many pages that has.
    """
    mail = {"target": "mail", "hold_reason": "pool closed", "state": "on_hold"}
    behind, taken = {"order_shard": 3, "hold_reason": "order", "state": "on_hold"}, {"order_shard": 5, "chunk_id": 1}
    backlog.add_pending(1, 0, **mail, expires_at=after(1))
    backlog.add_pending(1, 0, **behind)
    backlog.add_pending(2, 0, **taken)
    backlog.take("retry-1", 14)
    backlog.disable("mail")
    before = backlog.steps(query)
    backlog.add_pending(500, 61)
    backlog.add_pending(500, 11, **mail, expires_at=None)
    backlog.add_pending(500, 11, **behind)
    backlog.add_pending(500, 11, **taken)

    assert backlog.steps(query) <= before * 1.1


@pytest.mark.parametrize("taken", [False, True])
def test_pending_rows_cost_the_list_of_failing_targets_nothing(backlog: Backlog, taken: bool) -> None:
    """The list reads one row of a failing target, scheduled or taken, and none of other targets."""
    backlog.open_breaker("mail")
    changes = {"target": "mail", "order_shard": 5}
    backlog.add_pending(1, 0, **changes)
    if taken:
        backlog.take("retry-1", 11)
    before = backlog.steps(pending.FAILING_TARGETS)
    backlog.add_pending(500, 61)
    backlog.add_pending(500, 11, target="mail", hold_reason="pool closed", state="on_hold")
    if not taken:
        backlog.add_pending(500, 11, **changes)

    assert backlog.steps(pending.FAILING_TARGETS) <= before * 1.1


#: An index that is entered behind the kind that was found before.
_BEHIND = "(rule=? AND target=? AND state=? AND hold_reason=? AND runner>?)"


@pytest.mark.parametrize(
    ("query", "index"),
    [
        pytest.param(batches.UNFINISHED_BATCH, "ix_batch_uncommitted (kind=? AND runner=?)", id="unfinished"),
        pytest.param(batches.RELEASE_FOLLOWING, "uq_batch_follows (follows=?)", id="following"),
        pytest.param(batches.BUS_COMMITS_OUTSTANDING, "ix_batch_bus_commit_outstanding (runner=?)", id="bus-commits"),
        pytest.param(batches.select_overdue(["retry"], None), "ix_batch_uncommitted (kind=?)", id="stale"),
        pytest.param(pending.PENDING_TAKEN_BY, "ix_pending_taken_by (taken_by=?)", id="taken"),
        pytest.param(
            pending.update_released(aged=False, hold_reason="pool closed"),
            "ix_pending_waiting (rule=? AND target=?)",
            id="release",
        ),
        pytest.param(pending.DEAD_LETTER_PENDING, "ix_pending_on_hold (rule=? AND target=?)", id="give-up"),
        pytest.param(
            pending.HOLD_PENDING, "ix_pending_scheduled_kind (rule=? AND target=? AND hold_reason=?)", id="hold"
        ),
        pytest.param(batches.NEWEST_RETRY, "ix_batch_newest_retry", id="newest-retry"),
        pytest.param(pending.LAST_TAKEN, "ix_batch_newest_retry", id="last-taken"),
        pytest.param(routing.ONE_DUE, "ix_deferred_match_scheduled (rule=? AND due_at<?)", id="reference"),
        pytest.param(routing.ONE_DUE, "ix_deferred_match_taken (rule=?)", id="deferred-matches-taken"),
        pytest.param(pending.ONE_TAKEN, "ix_pending_taken", id="one-taken"),
        pytest.param(pending.TAKEN_TARGETS, "ix_pending_taken (rule=? AND target>?)", id="taken-targets"),
        pytest.param(pending.select_waiting_targets(None), f"ix_pending_kind {_BEHIND}", id="waiting"),
        pytest.param(pending.select_waiting_targets("flights"), f"ix_pending_kind {_BEHIND}", id="runners-waiting"),
        pytest.param(
            pending.RELEASE_EXPIRED, "ix_pending_on_hold (rule=? AND target=? AND expires_at<?)", id="release-expired"
        ),
        pytest.param(order.SHARDS_TAKEN, "ix_pending_taken (rule=? AND target=? AND order_shard>?)", id="shards-taken"),
        pytest.param(pending.SHARD_TAKEN, "ix_pending_taken (rule=? AND target=? AND order_shard=?)", id="shard-taken"),
        pytest.param(
            order.SHARDS_ON_HOLD,
            "ix_pending_shard (rule=? AND target=? AND order_shard=? AND state=? AND hold_reason>?)",
            id="on_hold",
        ),
        pytest.param(pending.select_counts(None), "ix_pending_waiting", id="counts"),
        pytest.param(batches.select_batches(50, None, None), "ix_batch_newest", id="newest"),
        pytest.param(
            files.select_newest_files("buffer", ["all", "archive"], 100, bus=None, batch_kind=None, older=False),
            "ix_batch_newest",
            id="newest-files",
        ),
        pytest.param(
            files.select_newest_files("buffer", ["all", "archive"], 100, bus=None, batch_kind="normal", older=True),
            "ix_batch_newest",
            id="newest-files-of-normal-batches",
        ),
        pytest.param(
            files.select_newest_files("delivery", ["all"], 100, bus=None, batch_kind=None, older=False),
            "ix_batch_newest",
            id="newest-delivery-files",
        ),
        pytest.param(
            files.select_newest_files("outcome", ["all"], 100, bus="flights", batch_kind=None, older=True),
            "ix_batch_newest",
            id="older-files-of-bus",
        ),
    ],
)
def test_history_is_not_read_again(tmp_path: Path, query: ClauseElement, index: str) -> None:
    """What every run asks is read from an index of what is in progress, not by going through all there ever was."""
    Ledger.open(f"sqlite:///{tmp_path}/ledger.sqlite", Clock()).close()
    connection = sqlite3.connect(tmp_path / "ledger.sqlite")
    statement = query.compile(dialect=sqlite.dialect())
    text = re.sub(r"\(__\[POSTCOMPILE_\w+\]\)", "(?)", str(statement))
    plan = connection.execute(f"EXPLAIN QUERY PLAN {text}", [None] * text.count("?")).fetchall()
    connection.close()

    assert any(f" INDEX {index}" in row[3] for row in plan), plan
