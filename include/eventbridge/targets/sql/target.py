"""Implements the SQL target, which writes each delivery as one row, exactly once."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from eventbridge.fault_points import reach
from eventbridge.model.outcome import Response
from eventbridge.targets.lines import holds_json
from eventbridge.targets.open import TargetSetup
from eventbridge.targets.protocol import Request
from eventbridge.targets.sql.database import (
    class_of,
    is_about_values,
    is_column_there,
    is_rolled_back,
    may_be_about_rows,
    open_database,
    text_of,
)
from eventbridge.targets.sql.fields import SqlFields
from eventbridge.targets.sql.table import MAX_COLUMNS, NULL, Table, TableUnusable, read_table

#: The maximum number of rows, and of their bytes, in one transaction.
_MAX_ROWS: Final = 1_000
_MAX_BYTES: Final = 4 << 20
#: How often a transaction is tried if it is in a deadlock, with one of another program the second time.
_TIMES: Final = 3
#: The number of rows that are tried alone before all rows of a transaction count as failed.
_PROBES: Final = 8


@dataclass
class _Row:
    """A delivery whose payload is an object, with the columns that it sets."""

    request: Request
    members: dict[str, bytes]  # the JSON text of each value
    columns: tuple[str, ...] = ()
    text: str = ""


class _Failure(NamedTuple):
    """Why a delivery has no row."""

    error_class: str
    error: str


@dataclass
class _Group:
    """Requests that are written in one transaction; `failed` end up without a row."""

    rows: list[_Row] = field(default_factory=list)
    failed: list[tuple[int, _Failure | None]] = field(default_factory=list)


class SqlTarget:
    """Writes rows in transactions of up to 1,000, each row under its delivery's id or its key.

    A repetition finds the row and adds none. If the database refuses a transaction because of a row, its rows are tried
    in halves, so that all rows but the refused one are written.
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
            table = read_table(self._engine, self._rule)
            with self._engine.connect() as connection:
                return table.why_no_rows(connection)
        except TableUnusable as problem:
            return str(problem)
        except SQLAlchemyError as error:
            return f"{self._where}: {text_of(error)}"

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
        failed: Sequence[tuple[int, _Failure | None]]
        try:
            group = self._prepare(requests)
            failed = group.failed + list(self._write(group.rows))
        except TableUnusable as error:
            failure = _Failure("TableUnusable", str(error))
            failed = [(request.index, failure) for request in requests]
        except SQLAlchemyError as error:
            self._forget()
            failed = [(request.index, self._failure(error)) for request in requests]
        duration_ms = self._since(started_at)
        for index, problem in failed:
            if problem is None:
                yield index, Response(True, started_at, duration_ms)
            else:
                name, text = problem
                yield index, Response(False, started_at, duration_ms, error_class=name, error=text)

    def _failure(self, error: SQLAlchemyError) -> _Failure:
        return _Failure(class_of(error), f"{self._where}: {text_of(error)}")

    def _since(self, started_at: datetime) -> float:
        return max(0.0, (self._clock() - started_at).total_seconds() * 1_000)

    def _prepare(self, requests: Sequence[Request]) -> _Group:
        """Return the rows of requests, and add columns if the rule says so."""
        group = _Group()
        for request in requests:
            members = _object(request.payload)
            if members is None:
                group.failed.append((request.index, _Failure("MessageRefused", _why_no_object(request.payload))))
                continue
            row = _Row(request, members)
            problem = self._add_columns(members) if self._rule.new_columns == "add" else None
            if problem is None and (text := self._fit(self._known_table(), row)) is not None:
                problem = _Failure("MessageRefused", text)
            if problem is None:
                group.rows.append(row)
            else:
                group.failed.append((request.index, problem))
        return group

    def _fit(self, table: Table, row: _Row) -> str | None:
        """Set the columns and the text of a row, or return why it has none."""
        unknown = [name for name in row.members if name not in table.columns]
        if self._rule.new_columns != "ignore":
            lost = unknown if self._rule.new_columns == "refuse" else [x for x in unknown if row.members[x] != NULL]
            if lost:
                return self._why_lost(table, lost[0])
        values = {name: value for name, value in row.members.items() if name not in unknown}
        lacking = [name for name in self._rule.key if values.get(name, NULL) == NULL]
        if lacking:
            return f"the payload has no value for {lacking[0]!r}, a column of the key"
        if self._rule.delivery_id in table.columns:
            values[self._rule.delivery_id] = json.dumps(row.request.delivery_id).encode()
        if (
            table.dialect == "sqlite"
            and (name := next(filter(lambda x: _is_unfit(values[x]), values), None)) is not None
        ):
            return f"the text of the member {name[:80]!r} has the character NUL, at which SQLite would cut it"
        row.columns = tuple(sorted(values))
        row.text = table.row([(name, values[name]) for name in row.columns])
        return None

    def _why_lost(self, table: Table, name: str) -> str:
        """Return why a member of a payload has no column."""
        if name in table.computed:
            return (
                f"the database itself sets the column {name[:80]!r} of the table {self._rule.table!r}. Let the "
                "transform leave it out, or write new_columns: ignore"
            )
        if self._rule.new_columns == "refuse":
            return (
                f"the table {self._rule.table!r} has no column {name[:80]!r}. Add it, let the transform leave it "
                "out, or write new_columns: ignore or add"
            )
        return (
            f"{name[:80]!r} cannot be the name of a new column. Write letters, digits and _ only, and no name that the "
            "database uses or that differs from another one only in case"
        )

    def _write(self, rows: Sequence[_Row], *, is_half: bool = False) -> Iterator[tuple[int, _Failure | None]]:
        """Write rows in one transaction, or in smaller ones if the database refuses a row.

        Raises DBAPIError if the database would refuse any other row too.
        """
        if not rows:
            return
        try:
            self._transact(rows)
        except DBAPIError as error:
            if not may_be_about_rows(error):
                raise
            if len(rows) == 1:
                refused = _Failure("MessageRefused", f"{self._where} refuses the row: {text_of(error)}")
                yield rows[0].request.index, refused if is_about_values(error) else self._failure(error)
                return
            if not (is_half or is_about_values(error) or self._takes_any(rows)):
                raise
            half = len(rows) // 2
            yield from self._write(rows[:half], is_half=True)
            yield from self._write(rows[half:], is_half=True)
            return
        for row in rows:
            yield row.request.index, None

    def _takes_any(self, rows: Sequence[_Row]) -> bool:
        """Return whether the database would take one of some rows; writes nothing, because rows have an order."""
        for row in rows[:: max(1, len(rows) // _PROBES)]:
            try:
                with self._connected().begin() as transaction:
                    self._execute([row])
                    transaction.rollback()
            except DBAPIError as error:
                if not may_be_about_rows(error):
                    raise
            else:
                return True
        return False

    def _transact(self, rows: Sequence[_Row]) -> None:
        """Write rows in one transaction; begin again if it was in a deadlock with another one.

        The second time, it waits for those of all other pushes to the table, and they wait for it.
        """
        for number in range(_TIMES):
            connection = self._connected()
            reach("target.send")
            try:
                with connection.begin():
                    if (lock := self._known_table().lock(is_shared=number == 0)) is not None:
                        connection.exec_driver_sql(lock)
                    self._execute(rows)
            except DBAPIError as error:
                if number + 1 == _TIMES or not is_rolled_back(error):
                    raise
            else:
                break
        reach("target.responded")

    def _execute(self, rows: Sequence[_Row]) -> None:
        table, connection = self._known_table(), self._connected()
        for columns, texts in self._statements(rows):
            connection.exec_driver_sql(table.statement(columns), {"rows": f"[{','.join(texts)}]"})

    def _statements(self, rows: Sequence[_Row]) -> Iterator[tuple[tuple[str, ...], Sequence[str]]]:
        """Yield the columns and rows of each statement, which sets the same columns in each of its rows.

        Rows with the same key must be updated in their order, and by different statements. Those of one statement are
        sorted by key, because most deadlocks come from different orders.
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
                yield columns, [texts[each] for each in sorted(texts)]
                texts = {}
            columns = row.columns
            texts[key] = row.text
        yield columns, [texts[each] for each in sorted(texts)]

    def _known_table(self) -> Table:
        if self._table is None:
            self._table = read_table(self._engine, self._rule)
        return self._table

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed or self._connection.invalidated:
            self._connection = self._engine.connect()
        return self._connection

    def _add_columns(self, members: Mapping[str, bytes]) -> _Failure | None:
        """Add columns that a row needs; return why they cannot be added."""
        table = self._known_table()
        lacking = table.additions(members)
        if not lacking:
            return None
        if len(table.columns) + len(lacking) > MAX_COLUMNS:
            return _Failure(
                "TableUnusable",
                f"the table {self._rule.table!r} would get more than {MAX_COLUMNS} columns. Let the transform of the "
                "target leave members out, or write new_columns: refuse or ignore",
            )
        failure = None
        for statement in lacking.values():
            try:
                with self._connected().begin():
                    self._connected().exec_driver_sql(statement)
            except DBAPIError as error:
                if not may_be_about_rows(error):
                    raise
                if not is_column_there(error):  # it is also if another process was faster
                    failure = self._failure(error)
        self._table = read_table(self._engine, self._rule)
        return failure

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


def _why_no_object(payload: bytes) -> str:
    if holds_json(payload) and payload.lstrip()[:1] == b"{":
        return (
            "no column can hold the payload, because it has half of a surrogate pair, or is nested too deep. Let the "
            "transform of the target leave that member out"
        )
    return "a row is a JSON object, but the payload is not. Let the transform of the target produce one"


def _is_unfit(value: bytes) -> bool:
    """Return whether a JSON text is a string with the character NUL."""
    return value[:1] == b'"' and b"\\u0000" in value and "\0" in msgspec.json.decode(value)


def open_sql(opening: TargetSetup[SqlFields]) -> SqlTarget:
    """Return an SQL target; reads its connection now. Raises ConnectionUnusable if it cannot be used."""
    return SqlTarget(open_database(opening), opening.target, clock=opening.clock)
