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
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from eventbridge.event.ids import delivery_id_text
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
from eventbridge.targets.sql.row_form import NO_OBJECT, NULL, Row, RowForm
from eventbridge.targets.sql.table import MAX_COLUMNS, Table, TableUnusable, read_table

#: The maximum number of rows, and of their bytes, in one transaction.
_MAX_ROWS: Final = 1_000
_MAX_BYTES: Final = 4 << 20
#: How often a transaction is tried if it is in a deadlock, with one of another program the second time.
_TIMES: Final = 3
#: The number of rows that are tried alone before all rows of a transaction count as failed.
_PROBES: Final = 8


class _Failure(NamedTuple):
    """Why a delivery has no row."""

    error_class: str
    error: str


@dataclass
class _Group:
    """Requests that are written in one transaction; `failed` end up without a row."""

    rows: list[Row] = field(default_factory=list)
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
        self._form: RowForm | None = None  # of the last payload that was taken apart for a block
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

    def deliver_block(
        self, delivery_ids: pa.Array, payloads: pa.Array, until: datetime
    ) -> Generator[tuple[int, Response], None, None]:
        """Write a row for every payload, see `protocol.BlockTarget`.

        The rest is left to `deliver` from the first transaction on of which a row cannot be written.
        """
        start = 0
        while start < len(payloads) and (started_at := self._clock()) < until:
            bodies = _take_bodies(payloads.slice(start, _MAX_ROWS))
            failure = None
            try:
                rows = self._rows_of(delivery_ids.slice(start, len(bodies)).to_pylist(), bodies)
                if rows is None:
                    return
                self._transact(rows)
            except TableUnusable:
                return
            except SQLAlchemyError as error:
                if isinstance(error, DBAPIError) and may_be_about_rows(error):
                    return
                self._forget()
                failure = self._failure(error)
            start += len(bodies)
            yield start, _response(failure, started_at, self._since(started_at))

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
            yield index, _response(problem, started_at, duration_ms)

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
            problem = self._add_columns(members) if self._rule.new_columns == "add" else None
            if problem is None:
                row = self._row(self._known_table(), request.index, request.delivery_id, members)
                if isinstance(row, Row):
                    group.rows.append(row)
                    continue
                problem = _Failure("MessageRefused", row)
            group.failed.append((request.index, problem))
        return group

    def _rows_of(self, ids: Sequence[bytes], payloads: Sequence[bytes]) -> list[Row] | None:
        """Return the rows of payloads; None if one of them has none, or needs new columns.

        Most events of a rule have the same members, and are not taken apart.
        """
        table = self._known_table()
        rows: list[Row] = []
        for number, (delivery_id, payload) in enumerate(zip(ids, payloads, strict=True)):
            row: Row | str | None = self._form.row(number, delivery_id, payload) if self._form is not None else None
            if row is None:
                members = _object(payload)
                if members is None:
                    return None
                self._form = table.form_of(tuple(members))
                row = self._row(table, number, delivery_id_text(delivery_id), members)
            if isinstance(row, str):
                return None
            rows.append(row)
        return rows

    def _row(self, table: Table, number: int, delivery_id: str, members: Mapping[str, bytes]) -> Row | str:
        """Return the row with the members of a payload, given the JSON text of each, or why there is none."""
        unknown = [name for name in members if name not in table.columns]
        if self._rule.new_columns != "ignore":
            lost = unknown if self._rule.new_columns == "refuse" else [x for x in unknown if members[x] != NULL]
            if lost:
                return self._why_lost(table, lost[0])
        values = {name: value for name, value in members.items() if name not in unknown}
        lacking = [name for name in self._rule.key if values.get(name, NULL) == NULL]
        if lacking:
            return f"the payload has no value for {lacking[0]!r}, a column of the key"
        if self._rule.delivery_id in table.columns:
            values[self._rule.delivery_id] = json.dumps(delivery_id).encode()
        if (
            table.dialect == "sqlite"
            and (name := next(filter(lambda x: _is_unfit(values[x]), values), None)) is not None
        ):
            return f"the text of the member {name[:80]!r} has the character NUL, at which SQLite would cut it"
        columns = tuple(sorted(values))
        text = table.row([(name, values[name]) for name in columns])
        return Row(number, columns, text, tuple(members[name] for name in self._rule.key))

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

    def _write(self, rows: Sequence[Row], *, is_half: bool = False) -> Iterator[tuple[int, _Failure | None]]:
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
                yield rows[0].number, refused if is_about_values(error) else self._failure(error)
                return
            if not (is_half or is_about_values(error) or self._takes_any(rows)):
                raise
            half = len(rows) // 2
            yield from self._write(rows[:half], is_half=True)
            yield from self._write(rows[half:], is_half=True)
            return
        for row in rows:
            yield row.number, None

    def _takes_any(self, rows: Sequence[Row]) -> bool:
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

    def _transact(self, rows: Sequence[Row]) -> None:
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

    def _execute(self, rows: Sequence[Row]) -> None:
        table, connection = self._known_table(), self._connected()
        for columns, texts in self._statements(rows):
            connection.exec_driver_sql(table.statement(columns), {"rows": f"[{','.join(texts)}]"})

    def _statements(self, rows: Sequence[Row]) -> Iterator[tuple[tuple[str, ...], Sequence[str]]]:
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
            if texts and (row.columns != columns or row.key in texts):
                yield columns, [texts[each] for each in sorted(texts)]
                texts = {}
            columns = row.columns
            texts[row.key] = row.text
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
        self._table = self._form = None


def _response(failure: _Failure | None, started_at: datetime, duration_ms: float) -> Response:
    if failure is None:
        return Response(True, started_at, duration_ms)
    return Response(False, started_at, duration_ms, error_class=failure.error_class, error=failure.error)


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


def _take_bodies(payloads: pa.Array) -> list[bytes]:
    """Return the first payloads, as many as one transaction takes; a null is empty."""
    ends = np.cumsum(pc.fill_null(pc.binary_length(payloads), 0).to_numpy())
    taken = payloads.slice(0, int(np.searchsorted(ends, _MAX_BYTES)) + 1)
    return [each or b"" for each in taken.to_pylist()]


_DECODER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _object(payload: bytes) -> dict[str, bytes] | None:
    """Return the JSON text of each member of an object, or None if the payload is not a JSON object."""
    try:
        payload.decode()
        return {name: bytes(value).strip() for name, value in _DECODER.decode(payload).items()}
    except NO_OBJECT:
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
