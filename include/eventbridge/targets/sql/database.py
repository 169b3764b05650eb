"""Opens the databases of the target type `sql`, and says what their errors are about."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from eventbridge.clients.postgresql import NOTICES_DEATH
from eventbridge.config.connection import Connection, require_type
from eventbridge.errors import ConnectionUnusable, PackageMissing
from eventbridge.targets.open import TargetSetup
from eventbridge.targets.sql.fields import SqlFields

_TYPES: Final = ("postgres", "postgresql", "sqlite")
#: The maximum length of a database's message in a record of an attempt.
_MAX_TEXT: Final = 500
#: The extras of a PostgreSQL connection that libpq knows, as Airflow's connections have them.
_EXTRAS: Final = ("sslmode", "sslrootcert", "sslcert", "sslkey", "options", "target_session_attrs")
#: Classes of SQLSTATEs about the values of a row: cardinality, data, integrity, WITH CHECK OPTION, and the limits of an
#: index or of a nested value.
_OF_VALUES: Final = ("21", "22", "23", "44", "54")
#: The class of those whose messages quote a value, such as `invalid input syntax for type integer: "4711"`.
_DATA: Final = "22"
_QUOTED: Final = re.compile('".*"')
#: Classes of SQLSTATEs about the session or the server, so that other rows fail as well: connection, transaction,
#: login, rollback, resources, locks, operator intervention, system and internal errors.
_OF_SERVER: Final = ("08", "25", "28", "3D", "40", "53", "55", "57", "58", "XX")
#: Those of `_OF_SERVER` after which the database is away or slow, besides 55P03, a lock that is not available.
_AWAY: Final = ("08", "53", "57", "58")
#: The primary result codes of SQLite for an error of a statement or a value; others are about the file or a lock.
_SQLITE_OF_ROWS: Final = (1, 18, 19, 20)  # ERROR, TOOBIG, CONSTRAINT, MISMATCH


def is_about_values(error: DBAPIError) -> bool:
    """Return whether a database refuses a value or a row for good."""
    state = _state(error)
    if state is None:  # SQLite, or psycopg itself
        return isinstance(error, DataError | IntegrityError)
    return state[:2] in _OF_VALUES


def may_be_about_rows(error: DBAPIError) -> bool:
    """Return whether a database could accept other rows, because the error may come from the columns or the values."""
    state = _state(error)
    if state is not None:
        return state[:2] not in _OF_SERVER
    code = getattr(error.orig, "sqlite_errorcode", None)
    return is_about_values(error) if code is None else code & 0xFF in _SQLITE_OF_ROWS


def is_rolled_back(error: DBAPIError) -> bool:
    """Return whether a transaction was rolled back because of another one, and may succeed at once."""
    return _state(error) in ("40001", "40P01")


def is_column_there(error: DBAPIError) -> bool:
    """Return whether a column cannot be added because the table, or the database itself, has one of that name."""
    return _state(error) == "42701" or "duplicate column name" in str(error.orig)


def class_of(error: SQLAlchemyError) -> str:
    """Return the error class of deliveries that fail because of an error."""
    state = _state(error)
    if state is not None:
        is_away = state[:2] in _AWAY or state == "55P03"
    else:
        is_away = isinstance(error, OperationalError) and not may_be_about_rows(error)
    return "DatabaseUnavailable" if is_away else "DatabaseError"


def text_of(error: SQLAlchemyError) -> str:
    """Return a database's message on one line, without the statement, its parameters and the values of a row.

    Callers without the right to payloads see it.
    """
    orig = getattr(error, "orig", None)
    primary = getattr(getattr(orig, "diag", None), "message_primary", None)
    text = " ".join(str(primary or orig or error).split())
    if (_state(error) or "").startswith(_DATA):
        text = _QUOTED.sub('"..."', text)
    return text[:_MAX_TEXT]


def _state(error: SQLAlchemyError) -> str | None:
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return None if state is None else str(state)


def open_database(opening: TargetSetup[SqlFields]) -> Engine:
    """Return the engine of a target; reads its connection now. Raises ConnectionUnusable if it cannot be used."""
    target = opening.target
    connection = opening.connections(target.connection)
    require_type(connection, _TYPES, f"target {target.name!r} of rule {opening.rule!r}")
    if connection.type == "sqlite":
        return _sqlite(connection, opening)
    return _postgresql(connection, target.timeout_seconds)


def _sqlite(connection: Connection, opening: TargetSetup[SqlFields]) -> Engine:
    text = connection.host or f"/{connection.schema}"
    path = Path(text)
    if not path.is_absolute():
        raise ConnectionUnusable(
            f"Connection {connection.id!r} must have the absolute path of a SQLite file as its host."
        )
    real = path.resolve()  # of a symbolic link
    if opening.locations.owns_file(str(real.parent), [real.name]):
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


def _postgresql(connection: Connection, seconds: float) -> Engine:
    if not connection.host:
        raise ConnectionUnusable(
            f"Connection {connection.id!r} names no host. Give it the host of the PostgreSQL server."
        )
    _refuse_unsendable(connection)
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
        **NOTICES_DEATH,
    }
    options |= {name: str(value) for name, value in connection.extra.items() if name in _EXTRAS}
    try:
        engine = create_engine(url, poolclass=NullPool, connect_args=options)
        from eventbridge.targets.sql.session import LimitedSession
    except ModuleNotFoundError as error:
        raise PackageMissing.from_import_error(error) or error from None

    @event.listens_for(engine, "do_connect")
    def connect(_dialect: object, _record: object, arguments: Any, named: Any) -> LimitedSession:
        return LimitedSession.connect(*arguments, **named)

    @event.listens_for(engine, "connect")
    def limit(session: LimitedSession, _: object) -> None:
        session.limit(seconds)

    return engine


def _refuse_unsendable(connection: Connection) -> None:
    for name, value in (("login", connection.login), ("password", connection.password), ("schema", connection.schema)):
        try:
            is_sendable = b"\0" not in value.encode()
        except UnicodeEncodeError:
            is_sendable = False
        if not is_sendable:
            raise ConnectionUnusable(
                f"Connection {connection.id!r} has a {name} with a character that cannot be sent. Copy it again."
            )
