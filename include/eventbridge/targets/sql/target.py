"""Implements the SQL target, which writes each delivery as one row, exactly once."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from eventbridge.config.connection import Connection as Credentials
from eventbridge.config.connection import require_type
from eventbridge.errors import ConnectionUnusable, PackageMissing
from eventbridge.fault_points import reach
from eventbridge.model.outcome import Response
from eventbridge.targets.open import TargetSetup
from eventbridge.targets.protocol import Request
from eventbridge.targets.sql.fields import SqlFields
from eventbridge.targets.sql.table import MAX_COLUMNS, NULL, Table, TableUnusable, read_table

#: The maximum number of rows, and of their bytes, in one transaction.
_MAX_ROWS: Final = 1_000
_MAX_BYTES: Final = 4 << 20
_TYPES: Final = ("postgres", "postgresql", "sqlite")
#: The maximum length of a database's message in a record of an attempt.
_MAX_TEXT: Final = 500


@dataclass
class _Row:
    """A delivery whose payload is an object, with the columns that it sets."""

    request: Request
    members: dict[str, bytes]  # the JSON text of each value
    columns: tuple[str, ...] = ()
    text: str = ""


@dataclass
class _Group:
    """Requests that are written in one transaction; `refused` ends up without a row."""

    rows: list[_Row] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)


class SqlTarget:
    """Writes rows in transactions of up to 1,000, each row under its delivery's id or its key.

    A repetition finds the row and adds none. If the database refuses a transaction because of a value, its rows are
    tried in halves, so that all rows but the refused one are written.
    """

    flush_every = 1

    def __init__(self, engine: Engine, rule: SqlFields, *, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._rule = rule
        self._clock = clock
        self._table: Table | None = None
        self._connection: Connection | None = None
        self.more_of_response = 0

    def deliver(self, requests: Sequence[Request], until: datetime) -> Generator[tuple[int, Response], None, None]:
        """Write a row for every request, see `protocol.Target`."""
        waiting = iter(requests)
        while self._clock() < until:
            taken = _take(waiting)
            if not taken:
                return
            started_at = self._clock()
            responses = list(self._write_all(taken, started_at))
            for left, each in zip(range(len(responses) - 1, -1, -1), responses, strict=True):
                self.more_of_response = left
                yield each

    def flush(self) -> None:
        """Return immediately, because a committed row is durable."""

    def check(self) -> str | None:
        """Return why no row could be written, or None if the table is there; writes nothing."""
        try:
            read_table(self._engine, self._rule)
        except TableUnusable as problem:
            return str(problem)
        except SQLAlchemyError as error:
            return f"{self._where}: {_text(error)}"
        return None

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(SQLAlchemyError):
                connection.close()

    @property
    def _where(self) -> str:
        return f"the database of connection {self._rule.connection!r}"

    def _write_all(self, requests: Sequence[Request], started_at: datetime) -> Iterator[tuple[int, Response]]:
        """Write requests, and return their responses; an error of the database itself is the response of all."""
        try:
            group = self._prepare(requests)
            outcomes = list(self._write(group.rows))
        except TableUnusable as error:
            yield from self._failed(requests, started_at, "TableUnusable", str(error))
            return
        except SQLAlchemyError as error:
            self._forget()
            name = "DatabaseUnavailable" if isinstance(error, OperationalError) else "DatabaseError"
            yield from self._failed(requests, started_at, name, f"{self._where}: {_text(error)}")
            return
        duration_ms = self._since(started_at)
        for index, problem in group.refused + outcomes:
            if problem is None:
                yield index, Response(True, started_at, duration_ms)
            else:
                yield index, Response(False, started_at, duration_ms, error_class="MessageRefused", error=problem)

    def _failed(
        self, requests: Sequence[Request], started_at: datetime, name: str, text: str
    ) -> Iterator[tuple[int, Response]]:
        duration_ms = self._since(started_at)
        for request in requests:
            yield request.index, Response(False, started_at, duration_ms, error_class=name, error=text)

    def _since(self, started_at: datetime) -> float:
        return max(0.0, (self._clock() - started_at).total_seconds() * 1_000)

    def _prepare(self, requests: Sequence[Request]) -> _Group:
        """Return the rows of requests, and add columns if the rule says so."""
        table = self._known_table()
        group = _Group()
        for request in requests:
            members = _object(request.payload)
            if members is None:
                what = "a row is a JSON object, but the payload is not. Let the transform of the target produce one"
                group.refused.append((request.index, what))
                continue
            row = _Row(request, members)
            if self._rule.new_columns == "add" and (lacking := table.additions(members)):
                table = self._add_columns(table, lacking)
            problem = self._fit(table, row)
            if problem is None:
                group.rows.append(row)
            else:
                group.refused.append((request.index, problem))
        return group

    def _fit(self, table: Table, row: _Row) -> str | None:
        """Set the columns and the text of a row, or return why it has none."""
        unknown = [name for name in row.members if name not in table.columns]
        if unknown and self._rule.new_columns == "refuse":
            return (
                f"the table {self._rule.table!r} has no column {unknown[0][:80]!r}. Add it, let the transform leave it "
                "out, or write new_columns: ignore or add"
            )
        if self._rule.new_columns == "add" and any(row.members[name] != NULL for name in unknown):
            return f"{unknown[0][:80]!r} cannot be the name of a column. Write letters, digits and _ only"
        values = {name: value for name, value in row.members.items() if name not in unknown}
        lacking = [name for name in self._rule.key if values.get(name, NULL) == NULL]
        if lacking:
            return f"the payload has no value for {lacking[0]!r}, a column of the key"
        if self._rule.delivery_id in table.columns:
            values[self._rule.delivery_id] = json.dumps(row.request.delivery_id).encode()
        row.columns = tuple(sorted(values))
        row.text = "{" + ",".join(f'"{name}":{values[name].decode()}' for name in row.columns) + "}"
        return None

    def _write(self, rows: Sequence[_Row]) -> Iterator[tuple[int, str | None]]:
        """Write rows in one transaction, or in smaller ones if the database refuses a value."""
        if not rows:
            return
        try:
            self._transact(rows)
        except DBAPIError as error:
            if not _is_about_values(error):
                raise
            if len(rows) == 1:
                yield rows[0].request.index, f"{self._where} refuses the row: {_text(error)}"
                return
            half = len(rows) // 2
            yield from self._write(rows[:half])
            yield from self._write(rows[half:])
            return
        for row in rows:
            yield row.request.index, None

    def _transact(self, rows: Sequence[_Row]) -> None:
        table = self._known_table()
        connection = self._connected()
        reach("target.send")
        with connection.begin():
            for columns, texts in self._statements(rows):
                connection.exec_driver_sql(table.statement(columns), {"rows": f"[{','.join(texts)}]"})
        reach("target.responded")

    def _statements(self, rows: Sequence[_Row]) -> Iterator[tuple[tuple[str, ...], Sequence[str]]]:
        """Yield the columns and rows of each statement, which sets the same columns in each of its rows.

        Rows with the same key must be updated in their order, and by different statements.
        """
        if not self._rule.key:
            of: dict[tuple[str, ...], list[str]] = {}
            for row in rows:
                of.setdefault(row.columns, []).append(row.text)
            yield from of.items()
            return
        columns: tuple[str, ...] = ()
        texts: dict[tuple[bytes, ...], str] = {}
        for row in rows:
            key = tuple(row.members[name] for name in self._rule.key)
            if texts and (row.columns != columns or key in texts):
                yield columns, list(texts.values())
                texts = {}
            columns = row.columns
            texts[key] = row.text
        yield columns, list(texts.values())

    def _known_table(self) -> Table:
        if self._table is None:
            self._table = read_table(self._engine, self._rule)
        return self._table

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed or self._connection.invalidated:
            self._connection = self._engine.connect()
        return self._connection

    def _add_columns(self, table: Table, lacking: dict[str, str]) -> Table:
        """Add columns that a row needs, and return the table as it is then."""
        if len(table.columns) + len(lacking) > MAX_COLUMNS:
            raise TableUnusable(
                f"the table {self._rule.table!r} would get more than {MAX_COLUMNS} columns. Let the transform of the "
                "target leave members out, or write new_columns: refuse or ignore"
            )
        for statement in lacking.values():
            try:
                with self._connected().begin():
                    self._connected().exec_driver_sql(statement)
            except OperationalError:
                if table.dialect != "sqlite":  # where it fails if another process was faster
                    raise
        self._table = read_table(self._engine, self._rule)
        return self._table

    def _forget(self) -> None:
        self.close()
        self._table = None


def _take(waiting: Iterator[Request]) -> list[Request]:
    """Return the next requests, as many as one transaction takes."""
    taken: list[Request] = []
    size = 0
    for request in itertools.islice(waiting, _MAX_ROWS):
        taken.append(request)
        size += len(request.payload)
        if size >= _MAX_BYTES or len(taken) == _MAX_ROWS:
            break
    return taken


_DECODER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _object(payload: bytes) -> dict[str, bytes] | None:
    """Return the JSON text of each member of an object, or None if the payload is not a JSON object."""
    try:
        payload.decode()
        return {name: bytes(value).strip() for name, value in _DECODER.decode(payload).items()}
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeDecodeError):
        return None


def _is_about_values(error: DBAPIError) -> bool:
    """Return whether a database refuses a value or a row, and not the statement or the session."""
    state = getattr(error.orig, "sqlstate", None)
    if state is None:  # SQLite
        return isinstance(error, DataError | IntegrityError)
    return str(state)[:2] in ("21", "22", "23")  # cardinality, data and integrity of SQL's classes of errors


def _text(error: SQLAlchemyError) -> str:
    """Return a database's message on one line, without the statement and its parameters."""
    orig = getattr(error, "orig", None)
    primary = getattr(getattr(orig, "diag", None), "message_primary", None)
    return " ".join(str(primary or orig or error).split())[:_MAX_TEXT]


def open_sql(opening: TargetSetup[SqlFields]) -> SqlTarget:
    """Return an SQL target; reads its connection now. Raises ConnectionUnusable if it cannot be used."""
    target = opening.target
    connection = opening.connections(target.connection)
    require_type(connection, _TYPES, f"target {target.name!r} of rule {opening.rule!r}")
    if connection.type == "sqlite":
        engine = _sqlite(connection, opening)
    else:
        engine = _postgresql(connection, target.timeout_seconds)
    return SqlTarget(engine, target, clock=opening.clock)


def _sqlite(connection: Credentials, opening: TargetSetup[SqlFields]) -> Engine:
    text = connection.host or f"/{connection.schema}"
    path = Path(text)
    if not path.is_absolute():
        raise ConnectionUnusable(
            f"Connection {connection.id!r} must have the absolute path of a SQLite file as its host."
        )
    if opening.locations.owns_file(str(path.parent), [path.name]):
        raise ConnectionUnusable(f"Connection {connection.id!r} names a file of EventBridge itself. Name another file.")
    if not path.is_file():
        raise ConnectionUnusable(
            f"Connection {connection.id!r}: there is no file {str(path)!r}. Create the database first."
        )
    return create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=NullPool,
        connect_args={"timeout": opening.target.timeout_seconds, "check_same_thread": False},
    )


def _postgresql(connection: Credentials, seconds: float) -> Engine:
    if not connection.host:
        raise ConnectionUnusable(
            f"Connection {connection.id!r} names no host. Give it the host of the PostgreSQL server."
        )
    url = URL.create(
        "postgresql+psycopg",
        connection.login or None,
        connection.password or None,
        connection.host,
        connection.port or 5432,
        connection.schema or None,
    )
    options: dict[str, Any] = {
        "connect_timeout": max(2, math.ceil(seconds)),
        "application_name": "eventbridge",
        "client_encoding": "UTF8",
    }
    options |= {name: str(value) for name, value in connection.extra.items() if name in _EXTRAS}
    try:
        engine = create_engine(url, poolclass=NullPool, connect_args=options)
    except ModuleNotFoundError as error:
        raise PackageMissing.from_import_error(error) or error from None

    @event.listens_for(engine, "connect")
    def limit(raw: Any, _: object) -> None:
        milliseconds = str(round(seconds * 1_000))
        with raw.cursor() as cursor:
            cursor.execute("SELECT set_config('statement_timeout', %s, false)", [milliseconds])
            cursor.execute("SELECT set_config('lock_timeout', %s, false)", [milliseconds])
        raw.commit()

    return engine


#: The extras of a PostgreSQL connection that libpq knows, as Airflow's connections have them.
_EXTRAS: Final = ("sslmode", "sslrootcert", "sslcert", "sslkey", "options", "target_session_attrs")
