"""Builds the statements that write rows of JSON into a table, for PostgreSQL and SQLite.

The database itself converts the members of a JSON array of rows to the types of the columns, so that numbers and times
arrive as they were written, and a thousand rows are one statement.
"""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, Engine, Inspector, inspect
from sqlalchemy.exc import NoSuchTableError, SAWarning

from eventbridge.targets.sql.fields import COLUMN, SqlFields
from eventbridge.targets.sql.row_form import NULL, RowForm

#: The maximum number of columns of a table to which columns are added, because the names of these columns come from
#: events.
MAX_COLUMNS: Final = 200
#: The first number of the advisory locks of tables. It is arbitrary.
_LOCKS: Final = 1_165_386_327
#: The maximum number of forms of rows that are remembered; events that have more are taken apart one by one.
_MAX_FORMS: Final = 32


# A row may have columns of any type, because the database converts the values.
warnings.filterwarnings("ignore", "Did not recognize type", SAWarning)


class TableUnusable(Exception):
    """Rows cannot be written to the table; the message says why, and what to do."""


@dataclass
class Table:
    """A table as the database describes it, and the statements for it."""

    name: str  # quoted
    dialect: str
    columns: set[str]  # that a row may set
    computed: set[str]  # that the database sets
    rule: SqlFields
    _quote: Any = field(repr=False, default=None)
    _forms: dict[tuple[str, ...], RowForm | None] = field(repr=False, default_factory=dict)

    def statement(self, columns: Sequence[str]) -> str:
        """Return the statement that writes rows with these columns; its parameter `rows` is a JSON array."""
        listed = ", ".join(map(self._quote, columns))
        target = ", ".join(map(self._quote, self.conflict_columns))
        changed = [name for name in columns if name not in self.conflict_columns]
        sets = ", ".join(f"{self._quote(name)} = excluded.{self._quote(name)}" for name in changed)
        act = f"DO UPDATE SET {sets}" if self.rule.key and sets else "DO NOTHING"
        if self.dialect == "postgresql":
            rows = f"SELECT {listed} FROM json_populate_recordset(NULL::{self.name}, CAST(%(rows)s AS json))"
        else:
            values = ", ".join(f"json_extract(value, '$[{index}]')" for index in range(len(columns)))
            rows = f"SELECT {values} FROM json_each(:rows) WHERE true"
        return f"INSERT INTO {self.name} ({listed}) {rows} ON CONFLICT ({target}) {act}"

    def lock(self, *, is_shared: bool) -> str | None:
        """Return the statement that locks out, until the transaction ends, those which lock the table alone.

        None if no two transactions can be in a deadlock: in SQLite, or if no row is written twice.
        """
        if self.dialect != "postgresql" or not self.rule.key:
            return None
        shared = "_shared" if is_shared else ""
        return f"SELECT pg_advisory_xact_lock{shared}({_LOCKS}, {zlib.crc32(self.rule.table.encode()) - (1 << 31)})"

    def why_no_rows(self, connection: Connection) -> str | None:
        """Return which right is missing for any row; writes nothing. Raises SQLAlchemyError if the database does."""
        statement = self.statement(self.conflict_columns)
        if self.dialect != "postgresql":
            connection.exec_driver_sql("EXPLAIN " + statement.replace(":rows", "'[]'"))
            return None
        connection.exec_driver_sql("EXPLAIN " + statement.replace("%(rows)s", "'[]'"))
        query = "SELECT has_any_column_privilege(%(name)s, 'UPDATE')"
        if self.rule.key and not connection.exec_driver_sql(query, {"name": self.name}).scalar():
            return f"the user may not update the table {self.rule.table!r}, as key requires. Grant UPDATE"
        return None

    def row(self, values: Sequence[tuple[str, bytes]]) -> str:
        """Return an item of the parameter `rows`: an object in PostgreSQL; in SQLite, whose paths cannot name every
        column, an array.
        """
        if self.dialect == "postgresql":
            members = ",".join(f"{json.dumps(name)}:{value.decode()}" for name, value in values)
            return f"{{{members}}}"
        return f"[{','.join(value.decode() for _, value in values)}]"

    def form_of(self, names: tuple[str, ...]) -> RowForm | None:
        """Return the form of payloads with these members, or None if the text of such a payload is not that of a row:
        in SQLite, and if a member has no column or that of the delivery's id.
        """
        if names not in self._forms and len(self._forms) < _MAX_FORMS:
            key, id_column = self.rule.key, self.rule.delivery_id if self.rule.delivery_id in self.columns else None
            has_columns = self.columns.issuperset(names) and id_column not in names and set(key).issubset(names)
            is_row = self.dialect == "postgresql" and len(names) > 0 and has_columns
            self._forms[names] = RowForm(names, key, id_column) if is_row else None
        return self._forms.get(names)

    @property
    def conflict_columns(self) -> tuple[str, ...]:
        """Return the columns whose values no two rows share."""
        return self.rule.key or (self.rule.delivery_id,)

    def additions(self, row: Mapping[str, bytes]) -> dict[str, str]:
        """Return the columns that a row needs and the table lacks, with their statements; a null needs none."""
        found = {}
        for name, value in row.items():
            if name not in self.columns and COLUMN.fullmatch(name) and value != NULL:
                kind = _type_of(value) if self.dialect == "postgresql" else ""
                exists = "IF NOT EXISTS " if self.dialect == "postgresql" else ""
                found[name] = f"ALTER TABLE {self.name} ADD COLUMN {exists}{self._quote(name)} {kind}".rstrip()
        return found


def _type_of(value: bytes) -> str:
    """Return the type of PostgreSQL for a JSON text."""
    types = {b'"': "text", b"t": "boolean", b"f": "boolean", b"{": "jsonb", b"[": "jsonb"}
    return types.get(value[:1], "numeric")


def read_table(engine: Engine, rule: SqlFields) -> Table:
    """Return the table of a rule; raises TableUnusable if it does not exist or a repetition would add a row twice."""
    with engine.connect() as connection:  # one for all that is asked
        return _read_table(inspect(connection), engine, rule)


def _read_table(look: Inspector, engine: Engine, rule: SqlFields) -> Table:
    schema, _, name = rule.table.rpartition(".")
    preparer = engine.dialect.identifier_preparer
    quoted = preparer.quote_identifier(name)
    full = f"{preparer.quote_identifier(schema)}.{quoted}" if schema else quoted
    try:
        found = look.get_columns(name, schema or None)
    except NoSuchTableError:
        raise TableUnusable(f"there is no table {rule.table!r}. Create it, or correct table") from None
    computed = {each["name"] for each in found if "computed" in each or _is_always_numbered(each)}
    columns = {each["name"] for each in found} - computed
    table = Table(full, engine.dialect.name, columns, computed, rule, preparer.quote_identifier)
    wanted = set(table.conflict_columns)
    missing = sorted(wanted - columns)
    if missing:
        text = " or ".join(missing)
        raise TableUnusable(f"the table {rule.table!r} has no column {text}. {_remedy(table, wanted)}")
    if wanted not in _unique_columns(look, name, schema or None):
        raise TableUnusable(
            f"the table {rule.table!r} has no unique constraint on {', '.join(sorted(wanted))}, so a repetition would "
            f"add a row twice. {_remedy(table, wanted)}"
        )
    return table


def _unique_columns(look: Inspector, name: str, schema: str | None) -> Iterator[set[str]]:
    """Yield the columns of each unique constraint; each is asked for when needed, because a question takes 10 ms."""
    yield set(look.get_pk_constraint(name, schema)["constrained_columns"])
    yield from (set(each["column_names"]) for each in look.get_unique_constraints(name, schema))
    for index in look.get_indexes(name, schema):
        is_partial = any(option.endswith("_where") for option in index.get("dialect_options", {}))
        if index["unique"] and not is_partial and None not in index["column_names"]:
            yield {str(each) for each in index["column_names"]}


def _is_always_numbered(column: Any) -> bool:
    return bool((column.get("identity") or {}).get("always"))


def _remedy(table: Table, wanted: set[str]) -> str:
    if table.rule.key:
        return f"Write: CREATE UNIQUE INDEX ON {table.rule.table} ({', '.join(sorted(wanted))})"
    return f"Write: ALTER TABLE {table.rule.table} ADD COLUMN {table.rule.delivery_id} text UNIQUE"
