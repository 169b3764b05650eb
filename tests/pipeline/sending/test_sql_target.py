"""The target type `sql` on PostgreSQL and SQLite: each delivery is one row, however often it is sent."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pipeline.delivering import Sending, segment_rows, settled
from pipeline.dying import DIED, DONE, push_that_dies
from pipeline.streaming_tasks import a_streaming_task, until
from services.postgresql import Postgresql
from sqlalchemy import Engine, create_engine, make_url

from eventbridge.config.connection import Connection
from eventbridge.config.target_locations import TargetLocations
from eventbridge.delivery.push import push
from eventbridge.errors import ConnectionUnusable, RuleFileError
from eventbridge.model.outcome import Response
from eventbridge.pipeline.commit.stage import commit
from eventbridge.repair.audit import audit
from eventbridge.rules.load import load_rules
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import BlockTarget, Request, Target

PAGE = (Path(__file__).parents[3] / "docs" / "howto" / "connect-sql.md").read_text()
(RULES,) = re.findall(r"^```yaml rules\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(TABLES,) = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

ORDERS = "CREATE TABLE orders (delivery_id text UNIQUE, id text, amount numeric, note text)"


@dataclass
class Database:
    """A database of its own, and the connection that leads there."""

    engine: Engine
    connection: Connection

    def run(self, statement: str) -> None:
        with self.engine.begin() as connection:
            connection.exec_driver_sql(statement)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(statement)]

    @property
    def variable(self) -> str:
        """The connection as the value of a variable."""
        each = self.connection
        fields = {"conn_type": each.type, "host": each.host, "schema": each.schema, "port": each.port}
        return json.dumps({**fields, "login": each.login})


@pytest.fixture(params=["postgresql", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database of each kind, with the table `orders`."""
    if request.param == "sqlite":
        path = tmp_path / "shop.sqlite"
        sqlite3.connect(path).close()
        found = Database(create_engine(f"sqlite:///{path}"), Connection("shop", "sqlite", str(path)))
        found.run(ORDERS)
        yield found
        found.engine.dispose()
        return
    server: Postgresql = request.getfixturevalue("postgresql_server")
    url = server.new_database()
    parts = make_url(url)
    host, port, name = parts.host or "127.0.0.1", parts.port, parts.database or ""
    login, password = parts.username or "", str(parts.password or "")
    connection = Connection("shop", "postgres", host, port, login, password, name)
    found = Database(create_engine(parts.set(drivername="postgresql+psycopg")), connection)
    found.run(ORDERS)
    yield found
    found.engine.dispose()
    server.drop_database(url)


def now() -> datetime:
    return datetime.now(UTC)


def opened(database: Database, folder: Path, fields: str = "") -> Target:
    (folder / "sql-rules").mkdir(exist_ok=True)
    (folder / "sql-rules" / "r.yaml").write_text(
        "buses: {b: {source: {type: embedded}}}\n"
        "rules: {r: {bus: b, pattern: {}, targets: {rows: {type: sql, connection: shop, "
        f"table: orders{fields and ', '}{fields}}}}}}}}}\n"
    )
    target = load_rules(folder / "sql-rules").rules["r"].destinations["rows"]
    return open_target("r", target, lambda _: database.connection, now, (), TargetLocations((), (f"{folder}/own/",)))


def requests_of(*payloads: object) -> list[Request]:
    bodies = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in payloads]
    return [Request(number, str(uuid.uuid4()), body, "application/json") for number, body in enumerate(bodies)]


def delivered(database: Database, folder: Path, requests: list[Request], fields: str = "") -> list[Response]:
    with closing(opened(database, folder, fields)) as target:
        found = dict(target.deliver(requests, now() + timedelta(seconds=30)))
    return [found[request.index] for request in requests]


def delivered_as_block(
    database: Database, folder: Path, requests: list[Request], fields: str = ""
) -> list[tuple[int, Response]]:
    ids = pa.array([uuid.UUID(request.delivery_id).bytes for request in requests], pa.binary(16))
    payloads = pa.array([request.payload for request in requests], pa.binary())
    with closing(opened(database, folder, fields)) as target:
        assert isinstance(target, BlockTarget)
        return list(target.deliver_block(ids, payloads, now() + timedelta(seconds=30)))


def test_a_delivery_is_one_row_however_often_it_is_sent(database: Database, tmp_path: Path) -> None:
    """Members become columns, exactly as they are written; the delivery's id keeps the second row out."""
    requests = requests_of(
        b'{"id": "A-1", "amount": 12345678901234.56}', {"id": "\u00fc \u4e2d", "note": "x" * 1000}, {}, {"id": None}
    )
    for _ in range(2):
        responses = delivered(database, tmp_path, requests)
        assert [(each.accepted, each.error) for each in responses] == [(True, None)] * 4

    rows = {row[0]: row[1:] for row in database.rows("SELECT delivery_id, id, amount, note FROM orders")}
    assert len(rows) == 4
    first, second, third, fourth = (rows[request.delivery_id] for request in requests)
    assert (first[0], str(first[1])) == ("A-1", "12345678901234.56")
    assert second == ("\u00fc \u4e2d", None, "x" * 1000)
    assert third == fourth == (None, None, None)


def test_a_thousand_rows_are_written_in_a_few_transactions(database: Database, tmp_path: Path) -> None:
    """Each delivery has its response, and its row."""
    requests = requests_of(*({"id": f"A-{number}", "amount": number} for number in range(2_500)))
    responses = delivered(database, tmp_path, requests)

    assert all(each.accepted for each in responses)
    assert database.rows("SELECT count(*), count(DISTINCT delivery_id) FROM orders") == [(2_500, 2_500)]


def test_with_a_key_the_last_event_of_a_key_counts(database: Database, tmp_path: Path) -> None:
    """Rows are updated in the order of their events, whatever columns each of them sets."""
    database.run("CREATE UNIQUE INDEX by_id ON orders (id)")
    requests = requests_of(
        {"id": "a", "amount": 1, "note": "first"}, {"id": "b", "amount": 5}, {"id": "a", "amount": 2},
        {"id": "a", "amount": 3, "note": "third"}, {"id": "b", "amount": 6}, {"amount": 7},
    )  # fmt: skip
    responses = delivered(database, tmp_path, requests, "key: [id]")

    assert [each.accepted for each in responses] == [True] * 5 + [False]
    assert (responses[5].error_class, str(responses[5].error)) == (
        "MessageRefused", "the payload has no value for 'id', a column of the key",
    )  # fmt: skip
    rows = sorted((row[0], int(row[1]), row[2]) for row in database.rows("SELECT id, amount, note FROM orders"))
    assert rows == [("a", 3, "third"), ("b", 6, None)]


def test_a_row_that_the_database_refuses_is_refused_alone(database: Database, tmp_path: Path) -> None:
    """The rows beside it are written; the error is the database's, without the payload's other values."""
    database.run("DROP TABLE orders")
    database.run("CREATE TABLE orders (delivery_id text UNIQUE, id text, amount integer CHECK (amount < 100))")
    requests = requests_of(*({"id": f"A-{n}", "amount": 200 if n == 33 else n} for n in range(50)), b"[1]", b"no")
    responses = delivered(database, tmp_path, requests)

    refused = [(number, each.error_class) for number, each in enumerate(responses) if not each.accepted]
    assert refused == [(33, "MessageRefused"), (50, "MessageRefused"), (51, "MessageRefused")]
    assert "check constraint" in str(responses[33].error).lower()
    assert "a row is a JSON object" in str(responses[50].error)
    assert database.rows("SELECT count(*) FROM orders") == [(49,)]


ODD = (
    b' { "id" : "A-1" , "amount" : 12345678901234.56 } ',
    b'{"amount": 1, "id": "A-2"}',
    b'{"id": "A-3", "amount": 3, "note": "\\u00fc \\"q\\""}',
    b'{"i\\u0064": "A-4", "amount": 4}',
    b'{"id": "A-5", "amount": 1, "amount": 5}',
    b'{"id": "A-1", "amount": null}',
    b'{"id": "A-6", "note": {"a": [1, "}"]}}',
    '{"id": "\u4e2d", "amount": 7e2}'.encode(),
)


@pytest.mark.parametrize("fields", ["", "key: [id]", "new_columns: ignore"])
def test_a_block_is_written_as_its_deliveries_would_be(database: Database, tmp_path: Path, fields: str) -> None:
    """However a payload is written: spaces, escapes, members twice, in another order, or missing."""
    if "key" in fields:
        database.run("CREATE UNIQUE INDEX by_id ON orders (id)")
    requests = requests_of(*({"id": f"B-{number}", "amount": number} for number in range(1_500)), *ODD)
    query = "SELECT delivery_id, id, amount, note FROM orders ORDER BY delivery_id"
    assert all(each.accepted for each in delivered(database, tmp_path, requests, fields))
    alone = database.rows(query)
    database.run("DELETE FROM orders")

    responses = delivered_as_block(database, tmp_path, requests, fields)

    assert [(end, response.accepted) for end, response in responses] == [(1_000, True), (len(requests), True)]
    assert database.rows(query) == alone
    assert len(alone) == len(requests) - ("key" in fields)


@pytest.mark.parametrize(
    "bad", [b"[1]", b'{"id": "x", "colour": 1}', b'{"id": "x", "amount": "much"}', b'{"id": "\xff"}']
)
def test_a_block_ends_before_a_row_that_cannot_be_written(database: Database, tmp_path: Path, bad: bytes) -> None:
    """Its transaction is left to the deliveries one by one, and none of its rows is written before."""
    database.run("DROP TABLE orders")
    database.run("CREATE TABLE orders (delivery_id text UNIQUE, id text, amount integer CHECK (amount < 2000))")
    good = [{"id": f"A-{number}", "amount": number} for number in range(1_100)]
    bad = bad if database.engine.dialect.name == "postgresql" else bad.replace(b'"much"', b"3000")

    responses = delivered_as_block(database, tmp_path, requests_of(*good, bad, *good))

    assert [(end, response.accepted) for end, response in responses] == [(1_000, True)]
    assert database.rows("SELECT count(*) FROM orders") == [(1_000,)]


def test_a_refused_row_costs_the_rows_beside_it_no_attempt(
    sending: Sending, site: Any, database: Database, order: Callable[..., bytes]
) -> None:
    """A push sends them as a block first, and one by one when the database refuses the block."""
    database.run("DROP TABLE orders")
    database.run("CREATE TABLE orders (delivery_id text UNIQUE, id text, amount integer CHECK (amount < 100))")
    site.environ["EVENTBRIDGE_CONN_SHOP"] = database.variable
    value = "{id: $.data.id, amount: $.data.amount}"
    transform = (
        f'transform: {{form: TEMPLATE, value: {value}, template: \'{{"id": "${{id}}", "amount": ${{amount}}}}\'}}'
    )
    batch = sending.routed(
        10, order("bad", 200), 10, crm=f"{{type: sql, connection: shop, table: orders, {transform}}}"
    )

    report = push(sending.runtime, batch.batch_id, 0)
    sending.settle(batch)

    assert (report.delivered, report.dead_lettered) == (20, 1)
    rows = settled(sending.runtime, batch.batch_id)["crm"]
    assert sorted((row.status, row.attempts) for row in rows) == [("dead_lettered", 1)] + [("delivered", 1)] * 20
    assert database.rows("SELECT count(*) FROM orders") == [(20,)]


def test_rows_arrive_while_a_batch_is_open(sending: Sending, site: Any, database: Database) -> None:
    """In streaming mode; what the database refuses meanwhile is tried again, and each event is one row."""
    site.environ["EVENTBRIDGE_CONN_SHOP"] = database.variable
    transform = 'transform: {form: TEMPLATE, value: {id: $.id}, template: \'{"id": "${id}"}\'}'
    sending.rules(crm=f"{{type: sql, connection: shop, table: orders, {transform}}}")
    with a_streaming_task(sending):
        for number in range(1, 4):
            sending.publish(1)
            until(lambda number=number: database.rows("SELECT count(*) FROM orders") == [(number,)])
        database.run("ALTER TABLE orders RENAME TO elsewhere")
        sending.publish(1)
        until(lambda: has_failed(sending))
        database.run("ALTER TABLE elsewhere RENAME TO orders")
    sending.deliver()  # the retry, which otherwise follows when the batch has been open for a minute

    assert database.rows("SELECT count(*), count(DISTINCT id) FROM orders") == [(4, 4)]
    assert audit(sending.runtime).differences == ()


def has_failed(sending: Sending) -> bool:
    """Say whether a delivery has failed, as segments show."""
    runtime = sending.runtime
    rows = [row for batch in runtime.ledger.batches.find() for row in segment_rows(runtime, batch.batch_id)]
    return any(row["outcome"] == "retry_scheduled" for row in rows)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_an_error_quotes_no_value_of_the_row(database: Database, tmp_path: Path) -> None:
    """PostgreSQL's messages do, and callers without the right to payloads see errors."""
    database.run("ALTER TABLE orders ADD COLUMN at timestamptz, ADD COLUMN n integer")
    payloads = ({"amount": 'se"cret'}, {"at": "secret"}, {"at": "2026-13-secret"}, {"n": "99999999999"})
    responses = delivered(database, tmp_path, requests_of(*payloads))

    errors = [str(each.error).partition("refuses the row: ")[2] for each in responses]
    assert errors == [
        'invalid input syntax for type numeric: "..."',
        'invalid input syntax for type timestamp with time zone: "..."',
        'invalid input syntax for type timestamp with time zone: "..."',
        'value "..." is out of range for type integer',
    ]
    assert {each.error_class for each in responses} == {"MessageRefused"}


def test_members_without_a_column_are_refused_ignored_or_added(database: Database, tmp_path: Path) -> None:
    """As the rule says; a hostile name never becomes part of a statement."""
    odd = 'x"; DROP TABLE orders; --'
    (refused,) = delivered(database, tmp_path, requests_of({"id": "1", "city": "Ulm"}))
    (ignored,) = delivered(database, tmp_path, requests_of({"id": "2", "city": "Ulm"}), "new_columns: ignore")
    (added,) = delivered(
        database, tmp_path, requests_of({"id": "3", "city": "Ulm", "lines": [{"n": 1}], odd: 1}), "new_columns: add"
    )
    (hostile,) = delivered(database, tmp_path, requests_of({"id": "4", odd: 1}))

    assert (refused.error_class, ignored.accepted, added.accepted) == ("MessageRefused", True, False)
    assert "has no column 'city'. Add it" in str(refused.error)
    assert hostile.error_class == "MessageRefused"
    (again,) = delivered(
        database, tmp_path, requests_of({"id": "3", "city": "Ulm", "lines": [{"n": 1}]}), "new_columns: add"
    )
    assert again.accepted
    rows = database.rows("SELECT id, city, lines FROM orders ORDER BY id")
    assert [(row[0], row[1]) for row in rows] == [("2", None), ("3", "Ulm")]
    assert (rows[1][2] if isinstance(rows[1][2], list) else json.loads(rows[1][2])) == [{"n": 1}]


def test_a_table_that_could_get_a_row_twice_is_refused(database: Database, tmp_path: Path) -> None:
    """Without a unique constraint nothing is written; the check says which statement helps."""
    database.run("DROP TABLE orders")
    with closing(opened(database, tmp_path)) as target:
        missing = target.check()  # type: ignore[attr-defined]
    database.run("CREATE TABLE orders (delivery_id text, id text)")
    with closing(opened(database, tmp_path)) as target:
        unsafe = target.check()  # type: ignore[attr-defined]
    (response,) = delivered(database, tmp_path, requests_of({"id": "1"}))
    database.run("CREATE UNIQUE INDEX once ON orders (delivery_id)")
    with closing(opened(database, tmp_path)) as target:
        good = target.check()  # type: ignore[attr-defined]

    assert "there is no table 'orders'" in missing
    assert "so a repetition would add a row twice" in unsafe
    assert (response.accepted, response.error_class) == (False, "TableUnusable")
    assert good is None


POISON = {
    "a generated column": (
        "ALTER TABLE orders ADD COLUMN twice numeric GENERATED ALWAYS AS (amount * 2) VIRTUAL",
        "",
        {"id": "x", "twice": 1},
    ),
    "more columns than a table gets": ("", "new_columns: add", {f"c{number}": 1 for number in range(201)}),
    "a name that cannot be added": (
        "ALTER TABLE orders ADD COLUMN city text",
        "new_columns: add",
        {"CITY": 1, "xmin": 1, "x y": 2},
    ),
    "a nested value beyond all limits": ("", "", b'{"id": ' + b"[" * 3_000 + b"]" * 3_000 + b"}"),
    "half of a surrogate pair": ("", "", b'{"id": "\\ud800"}'),
    "a character that would end the text": ("", "", b'{"id": "a\\u0000b"}'),
}


@pytest.mark.parametrize("name", list(POISON))
def test_one_event_never_keeps_others_out_of_the_table(database: Database, tmp_path: Path, name: str) -> None:
    """Whatever its payload has, the rows beside it are written, and the error is of this event."""
    statement, fields, poison = POISON[name]
    if statement:
        database.run(statement)
    responses = delivered(database, tmp_path, requests_of({"id": "a"}, poison, {"id": "b"}), fields)

    assert [each.accepted for each in responses] == [True, False, True]
    assert responses[1].error_class in ("MessageRefused", "TableUnusable")
    assert "but the payload is not" not in str(responses[1].error) or "nested" in name
    assert database.rows("SELECT id FROM orders ORDER BY id") == [("a",), ("b",)]


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    ("statements", "poison"),
    [
        (["CREATE INDEX ON orders (note)"], {"note": "".join(map(chr, range(0x4E00, 0x6E00)))}),
        (
            [
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN IF new.id = 'x' THEN RAISE EXCEPTION 'not x'; END IF; RETURN new; END $$",
                "CREATE TRIGGER refuse BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION refuse()",
            ],
            {"id": "x"},
        ),
        (["ALTER TABLE orders ADD COLUMN kind regclass"], {"kind": "no_such_table"}),
    ],
    ids=["a value too long for an index", "an error of a trigger", "a name of no table"],
)
def test_an_error_of_one_row_is_of_no_other(
    database: Database, tmp_path: Path, statements: list[str], poison: dict[str, str]
) -> None:
    """PostgreSQL reports these errors like those of a statement, but other rows of it are written."""
    for statement in statements:
        database.run(statement)
    good = [{"id": f"A-{number}"} for number in range(20)]
    responses = delivered(database, tmp_path, requests_of(*good, poison, *good))

    assert [number for number, each in enumerate(responses) if not each.accepted] == [20]
    assert database.rows("SELECT count(*) FROM orders") == [(40,)]


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_the_check_finds_a_missing_right(database: Database, tmp_path: Path) -> None:
    """The check finds the missing right; a delivery is tried again, and few statements are."""
    login = f"u{uuid.uuid4().hex[:8]}"
    database.run(f"CREATE ROLE {login} LOGIN")
    database.run(f"GRANT SELECT ON orders TO {login}")
    database.run("CREATE UNIQUE INDEX by_id ON orders (id)")
    mine = replace(database.connection, login=login)
    limited = Database(database.engine, mine)
    try:
        with closing(opened(limited, tmp_path)) as target:
            no_insert = target.check()  # type: ignore[attr-defined]
        responses = delivered(limited, tmp_path, requests_of(*({"id": str(number)} for number in range(100))))
        database.run(f"GRANT INSERT ON orders TO {login}")
        with closing(opened(limited, tmp_path, "key: [id]")) as target:
            no_update = target.check()  # type: ignore[attr-defined]
        database.run(f"GRANT UPDATE (amount) ON orders TO {login}")
        with closing(opened(limited, tmp_path, "key: [id]")) as target:
            good = target.check()  # type: ignore[attr-defined]
    finally:
        database.run(f"DROP OWNED BY {login}")
        database.run(f"DROP ROLE {login}")

    assert "permission denied for table orders" in no_insert
    assert {(each.accepted, each.error_class) for each in responses} == {(False, "DatabaseError")}
    assert "may not update the table 'orders'" in no_update
    assert good is None


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_server_that_is_frozen_does_not_hold_a_push(database: Database, tmp_path: Path) -> None:
    """The client waits a little longer than the timeout, and no longer."""
    with closing(opened(database, tmp_path, "timeout: 1s")) as target:
        assert [
            each.accepted for _, each in target.deliver(requests_of({"id": "1"}), now() + timedelta(seconds=9))
        ] == [True]
        ((backend,),) = database.rows(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'eventbridge' AND datname = current_database()"
        )
        os.kill(backend, signal.SIGSTOP)
        try:
            began = time.monotonic()
            ((_, response),) = target.deliver(requests_of({"id": "2"}), now() + timedelta(seconds=9))
            passed = time.monotonic() - began
        finally:
            os.kill(backend, signal.SIGCONT)

    assert (response.accepted, response.error_class) == (False, "DatabaseUnavailable")
    assert "the server has not responded for 3 s" in str(response.error)
    assert 3.0 <= passed < 8.0


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_deadlock_costs_no_attempt(database: Database, tmp_path: Path) -> None:
    """The transaction that PostgreSQL rolled back begins again, and other pushes to the table wait for it."""
    database.run("CREATE UNIQUE INDEX by_id ON orders (id)")
    database.run("INSERT INTO orders (id) VALUES ('a'), ('b')")
    mine = Database(database.engine, replace(database.connection, extra={"options": "-c deadlock_timeout=2s"}))
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'eventbridge' AND wait_event_type = 'Lock' "
        "AND datname = current_database()"
    )
    with database.engine.connect() as other, ThreadPoolExecutor(1) as threads:
        other.exec_driver_sql("SET deadlock_timeout = '60s'")
        other.exec_driver_sql("UPDATE orders SET note = 'mine' WHERE id = 'b'")
        requests = requests_of({"id": "a", "amount": 1}, {"id": "b", "amount": 1})
        pushed = threads.submit(delivered, mine, tmp_path, requests, "key: [id]")
        until = time.monotonic() + 20
        while database.rows(waiting) != [(1,)]:
            assert time.monotonic() < until
        other.exec_driver_sql("UPDATE orders SET note = 'mine' WHERE id = 'a'")
        other.commit()
        responses = pushed.result()

    assert [(each.accepted, each.error) for each in responses] == [(True, None)] * 2
    rows = sorted((row[0], int(row[1]), row[2]) for row in database.rows("SELECT id, amount, note FROM orders"))
    assert rows == [("a", 1, "mine"), ("b", 1, "mine")]


def test_columns_of_any_name_are_written(database: Database, tmp_path: Path) -> None:
    """Quotes, backslashes, dots and percent signs in names that the table has are no part of a statement."""
    names = ["it's", 'q"x', "b\\y", "Gr\u00f6\u00dfe", "100%s", "a:b", "a.b", "$[0]"]
    quoted = database.engine.dialect.identifier_preparer.quote_identifier
    columns = ", ".join(f"{quoted(name)} text" for name in names)
    database.run("DROP TABLE orders")
    database.run(f"CREATE TABLE orders (delivery_id text UNIQUE, {columns})")
    responses = delivered(database, tmp_path, requests_of({name: name for name in names}))

    assert [(each.accepted, each.error) for each in responses] == [(True, None)]
    assert [row[1:] for row in database.rows("SELECT * FROM orders")] == [tuple(names)]


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_row_is_durable_although_the_database_commits_asynchronously(database: Database, tmp_path: Path) -> None:
    """Each session waits for the server's disk, whatever the default of the database is."""
    database.run(f'ALTER DATABASE "{database.engine.url.database}" SET synchronous_commit = off')
    database.run("ALTER TABLE orders ALTER note SET DEFAULT current_setting('synchronous_commit')")

    assert [each.accepted for each in delivered(database, tmp_path, requests_of({"id": "1"}))] == [True]
    assert database.rows("SELECT note FROM orders") == [("on",)]


def test_a_database_that_is_away_is_tried_again(tmp_path: Path) -> None:
    """The deliveries are retried, and the message has no password."""
    connection = Connection("shop", "postgres", "127.0.0.1", 9, "ann", "of-ann-4711", "shop")
    requests = requests_of({"id": "1"}, {"id": "2"})
    responses = delivered(Database(create_engine("sqlite://"), connection), tmp_path, requests)

    assert [(each.accepted, each.error_class) for each in responses] == [(False, "DatabaseUnavailable")] * 2
    assert "the database of connection 'shop'" in str(responses[0].error)
    assert "of-ann" not in str(responses)


def test_eventbridges_own_file_is_no_table(tmp_path: Path) -> None:
    """A connection cannot lead a rule into the ledger, also not by a link."""
    own = tmp_path / "own"
    own.mkdir()
    sqlite3.connect(own / "ledger.sqlite").close()
    link = tmp_path / "link.sqlite"
    link.symlink_to(own / "ledger.sqlite")
    for path in (own / "ledger.sqlite", link):
        found = Database(create_engine("sqlite://"), Connection("shop", "sqlite", str(path)))
        with pytest.raises(ConnectionUnusable, match="a file of EventBridge itself"):
            opened(found, tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("table: 'orders; drop'", "is not the name of a table"),
        ("table: a.b.c", "is not the name of a table"),
        ("table: orders, key: ['a b']", "is not a valid name"),
        ("table: orders, delivery_id: 'x y'", "is not the name of a column"),
        ("table: orders, new_columns: maybe", "new_columns"),
        ("", "table"),
    ],
)
def test_names_that_are_not_identifiers_are_refused_in_the_rule_file(tmp_path: Path, fields: str, message: str) -> None:
    """The error has the file and the line."""
    (tmp_path / "r.yaml").write_text(
        "buses: {b: {source: {type: embedded}}}\n"
        f"rules: {{r: {{bus: b, pattern: {{}}, targets: {{rows: {{type: sql, connection: c, {fields}}}}}}}}}\n"
    )
    with pytest.raises(RuleFileError) as refused:
        load_rules(tmp_path)
    assert message in str(refused.value)
    assert "r.yaml:2" in str(refused.value)


def test_a_push_may_die_anywhere_and_no_row_is_lost_or_twice(
    sending: Sending, site: Any, database: Database, tmp_path: Path, order: Callable[..., bytes]
) -> None:
    """Killed around any transaction, response or record: each event is in exactly one row afterwards."""
    site.environ["EVENTBRIDGE_CONN_SHOP"] = database.variable
    site.environ["EVENTBRIDGE_BATCH_TIMEOUT"] = "3600"
    transform = 'transform: {form: TEMPLATE, value: {id: $.id}, template: \'{"id": "${id}"}\'}'
    batch = sending.routed(5, crm=f"{{type: sql, connection: shop, table: orders, {transform}}}")

    for number in count(1):
        database.run("DELETE FROM orders")
        wreck = site.copy(tmp_path / f"wreck-{number}")
        code = push_that_dies(wreck.folder, wreck.environ, batch.batch_id, number)
        runtime = wreck.reopen()
        push(runtime, batch.batch_id, 0)
        Sending(wreck, sending.receiver, sending.order).settle(batch)

        assert {row.status for row in settled(runtime, batch.batch_id)["crm"]} == {"delivered"}
        assert database.rows("SELECT count(*), count(DISTINCT id) FROM orders") == [(5, 5)]
        assert commit(runtime, batch.batch_id)
        assert audit(runtime).differences == ()
        wreck.close()
        if code == DONE:
            break
        assert code == DIED
    assert number > 3


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_the_example_of_the_page_writes_its_tables(
    sending: Sending, site: Any, database: Database, order: Callable[..., bytes]
) -> None:
    """Each large order is a row; each customer has the amount of the last one."""
    site.environ["EVENTBRIDGE_CONN_SHOP_DB"] = database.variable
    database.run("CREATE SCHEMA sales")
    for statement in TABLES.splitlines():
        database.run(statement)
    site.write_rules(RULES)
    for number, amount in enumerate((2000, 3000, 10)):
        data = {"id": f"A-{number}", "amount": amount, "customer": "ann"}
        site.publish(order(str(number), time="2026-11-30T09:00:00Z", data=data), topic="events")
    sending.deliver()

    rows = database.rows("SELECT order_id, amount::int, placed_at::date::text FROM sales.orders ORDER BY order_id")
    assert rows == [("A-0", 2000, "2026-11-30"), ("A-1", 3000, "2026-11-30")]
    assert database.rows("SELECT customer, last_amount::int FROM sales.customers") == [("ann", 3000)]
