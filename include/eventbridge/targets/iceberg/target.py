"""Implements the Iceberg target, which appends each span of deliveries to a table, exactly once."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeVar

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    ServerError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.snapshots import Snapshot
from requests import RequestException
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from eventbridge.config.redaction import SecretForm, veiled
from eventbridge.config.target_locations import TargetLocations
from eventbridge.errors import InfrastructureError, UserError
from eventbridge.fault_points import reach
from eventbridge.model.outcome import Response
from eventbridge.policy.batch_request import batch_request_id
from eventbridge.targets.arrow_rows import ConvertedRows, RowConverter
from eventbridge.targets.iceberg.append import (
    REJECTED,
    SKEW,
    HistoryExpired,
    SpanName,
    SpanStored,
    add_columns,
    commit_append,
    create_table,
    expire_snapshots,
    folder_columns,
    has_rows,
    numbers_of_text,
    remove_files,
    write_files,
)
from eventbridge.targets.iceberg.catalog import catalog_opener, is_on_this_host, own_data_of, secrets_of
from eventbridge.targets.iceberg.fields import IcebergFields
from eventbridge.targets.open import TargetSetup
from eventbridge.targets.partitions import reject_long_partitions
from eventbridge.targets.protocol import DeliverySpan, Request, SpanResponse

#: The maximum number of deliveries that `deliver` appends at once.
_MAX_TOGETHER: Final = 100
#: How often an append is begun again, each time after the conflicts that the properties of the table allow.
_MAX_ROUNDS: Final = 5
#: The maximum length of an error in a record of an attempt.
_MAX_TEXT: Final = 500

Found = TypeVar("Found")


class _Failed(Exception):
    """A step of an append failed; the message says why, and what to do."""

    def __init__(self, error_class: str | None, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.error_class, self.code = error_class, code


@dataclass
class _Append:
    """The rows of a span, converted for a table as it is now, and their data files, which no snapshot has yet."""

    span: DeliverySpan
    table: Table
    rows: ConvertedRows
    files: list[DataFile] = field(default_factory=list)

    @property
    def name(self) -> SpanName:
        return SpanName(self.span.name, self.span.at)


class IcebergTarget:
    """Appends each span in one commit, whose snapshot has the name of the span; a repetition finds it.

    Payloads that do not fit the columns are rejected alone.
    """

    flush_every = 1

    def __init__(
        self,
        rule: IcebergFields,
        opener: Callable[[], Catalog],
        *,
        secrets: Sequence[SecretForm],
        locations: TargetLocations,
        clock: Callable[[], datetime],
    ) -> None:
        self._rule, self._open = rule, opener
        self._secrets, self._locations, self._clock = secrets, locations, clock
        self._catalog: Catalog | None = None
        self._may_create = True  # not by a check
        self.more_of_response = 0

    def deliver_span(self, span: DeliverySpan, until: datetime) -> SpanResponse | None:
        """Append a span, see `protocol.SpanTarget`."""
        if (started_at := self._clock()) >= until:
            return None
        try:
            rejected = self._append(span, until)
        except _Failed as failed:
            self.close()
            response = self._response(started_at, failed.error_class, self._message_of(failed), failed.code)
            return SpanResponse(response, {})
        ids = span.delivery_ids
        found = {
            ids[number].as_py(): self._response(started_at, "MessageRefused", text) for number, text in rejected.items()
        }
        return SpanResponse(self._response(started_at), found)

    def deliver(self, requests: Sequence[Request], until: datetime) -> Generator[tuple[int, Response], None, None]:
        """Append every request, up to 100 as one span that is named after all their ids; see `protocol.Target`."""
        waiting = iter(requests)
        while self._clock() < until:
            group = list(itertools.islice(waiting, _MAX_TOGETHER))
            if not group:
                return
            ids = [uuid.UUID(request.delivery_id).bytes for request in group]
            payloads = pa.array([request.payload for request in group], pa.binary())
            name = batch_request_id([request.delivery_id for request in group])
            found = self.deliver_span(DeliverySpan(name, self._clock(), pa.array(ids, pa.binary(16)), payloads), until)
            if found is None:
                return
            for left, request, each in zip(range(len(group) - 1, -1, -1), group, ids, strict=True):
                self.more_of_response = left
                yield request.index, found.rejected.get(each, found.response)

    def flush(self) -> None:
        """Return immediately, because a committed append is durable."""

    def check(self) -> str | None:
        """Return why no row could be appended, or None if the table is there; writes nothing."""
        self._may_create = False
        try:
            self._converter(self._loaded())
        except _Failed as failed:
            if self._rule.creates and isinstance(failed.__cause__, NoSuchTableError):
                return None
            return self._message_of(failed)
        finally:
            self._may_create = True
            self.close()
        return None

    def maintain(self, every: timedelta) -> bool:
        """Expire old snapshots if that is due, see `protocol.Maintainable`; compaction is left to other engines."""
        try:
            table = self._loaded()
            return self._guarded(lambda: expire_snapshots(table, self._clock(), every))
        except _Failed as failed:
            raise InfrastructureError(self._message_of(failed)) from failed
        finally:
            self.close()

    def close(self) -> None:
        """Close connections."""
        catalog, self._catalog = self._catalog, None
        if catalog is not None:
            catalog.close()

    def _response(
        self, started_at: datetime, error_class: str | None = None, error: str | None = None, code: int | None = None
    ) -> Response:
        duration_ms = max(0.0, (self._clock() - started_at).total_seconds() * 1_000)
        return Response(error is None, started_at, duration_ms, code=code, error_class=error_class, error=error)

    def _append(self, span: DeliverySpan, until: datetime) -> Mapping[int, str]:
        """Append a span unless a snapshot has it; return why deliveries have no row, by their number."""
        for _ in range(_MAX_ROUNDS):
            append = self._converted(span)
            stored = self._guarded(lambda: self._stored(append))  # noqa: B023  # it is called at once
            if stored is not None or self._is_committed(append):
                if is_on_this_host(append.table.metadata):
                    os.sync()  # pyiceberg does not
                return append.rows.rejected if stored is None else stored
            if self._clock() >= until:
                break
        raise _Failed("CommitConflict", f"other writers have changed {self._where} each time. It is tried again later")

    def _is_committed(self, append: _Append) -> bool:
        """Commit an append, or add the columns that it needs; return whether it is committed."""
        rows = append.rows
        if rows.added:
            self._add_columns(append)
            return False
        if rows.table.num_rows:
            append.files = self._guarded(lambda: write_files(append.table, rows.table))
        reach("target.send")
        is_committed = not rows.table.num_rows or self._commit(append)
        reach("target.responded")
        return is_committed

    def _converted(self, span: DeliverySpan) -> _Append:
        table = self._loaded()
        converter, columns = self._converter(table)

        def rows() -> ConvertedRows:
            return reject_long_partitions(converter.convert(span.delivery_ids, span.payloads), columns)

        return _Append(span, table, self._guarded(rows))

    def _converter(self, table: Table) -> tuple[RowConverter, Mapping[str, str]]:
        """Return the converter to rows of a table, and which of their columns are in the names of folders."""
        rule = self._rule
        schema = self._guarded(lambda: schema_to_pyarrow(table.schema(), include_field_ids=False))
        converter = RowConverter(schema, rule.table, rule.delivery_id, rule.new_columns)
        try:
            columns = folder_columns(table.metadata)
        except ModuleNotFoundError:
            what = "is partitioned by other than whole values, which needs the package pyiceberg-core. Install it"
            raise _Failed("TableUnusable", f"{self._where} {what}") from None
        if (problem := converter.problem_of_ids) is not None:
            raise _Failed("TableUnusable", problem)
        return converter, columns

    def _loaded(self) -> Table:
        """Return the table as it is now."""
        if self._catalog is None:
            self._catalog = self._guarded(self._open)
        catalog = self._catalog
        table = self._guarded(lambda: self._found_or_created(catalog))
        if problem := own_data_of(table.metadata, self._locations):
            raise _Failed("TableUnusable", f"{self._where}: {problem}. Name another table")
        if table.properties.get(TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL):
            what = f"has the property {TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL}, which names code to load"
            raise _Failed("TableUnusable", f"{self._where} {what}. Remove it")
        return table

    def _found_or_created(self, catalog: Catalog) -> Table:
        try:
            return catalog.load_table(self._rule.table)
        except NoSuchTableError:
            if not self._rule.creates or not self._may_create:
                raise
        with suppress(TableAlreadyExistsError, CommitFailedException):  # created by another process
            create_table(catalog, self._rule)
        return catalog.load_table(self._rule.table)

    def _stored(self, append: _Append) -> Mapping[int, str] | None:
        """Return why deliveries of a stored span have no row, by their number; None if the span is not stored."""
        rejected = append.rows.rejected
        try:
            snapshot = append.name.snapshot(append.table.metadata)
        except HistoryExpired:
            return rejected if self._has_rows(append) else None
        return None if snapshot is None else _rejected_by(snapshot, rejected)

    def _has_rows(self, append: _Append) -> bool:
        """Return whether a table without the snapshots since a span was planned has its rows.

        Raises HistoryExpired if that cannot be seen, unless the span was planned within the last hour.
        """
        rows, column = append.rows.table, self._rule.delivery_id
        if column in rows.column_names:
            return has_rows(append.table, column, rows[column].to_pylist())
        if self._clock() - append.span.at > SKEW:
            raise HistoryExpired
        return False

    def _add_columns(self, append: _Append) -> None:
        try:
            self._guarded(lambda: add_columns(append.table, append.rows.added), CommitFailedException)
        except CommitFailedException:
            return  # another process has changed the table, and may have added them

    def _commit(self, append: _Append) -> bool:
        """Commit an append; return False after a conflict, after which its data files are removed."""
        rejected, count = append.rows.rejected, len(append.span.delivery_ids)
        try:
            self._guarded(
                lambda: commit_append(append.table, append.files, append.name, rejected, count),
                CommitFailedException,
                SpanStored,
            )
        except (CommitFailedException, SpanStored):
            remove_files(append.table, append.files)
            return False
        except _Failed as failed:
            if isinstance(failed.__cause__, _REFUSED):
                remove_files(append.table, append.files)
            elif self._was_committed(append):
                return True
            raise
        return True

    def _was_committed(self, append: _Append) -> bool:
        """Return whether an append was committed although its commit seemed to fail; False if that cannot be seen."""
        try:
            return append.name.snapshot(self._loaded().metadata) is not None
        except (_Failed, HistoryExpired):
            return False

    def _message_of(self, failed: _Failed) -> str:
        """Return the message of a failure, without secrets of the connection."""
        return veiled(str(failed).encode("utf-8", "replace"), self._secrets).decode("utf-8", "replace")

    @property
    def _where(self) -> str:
        return f"the table {self._rule.table!r} of connection {self._rule.connection!r}"

    def _guarded(self, step: Callable[[], Found], *passed: type[Exception]) -> Found:
        """Return what a step returns, and raise _Failed for all that pyiceberg, the catalog or its files may raise."""
        try:
            return step()
        except Exception as error:
            if isinstance(error, (UserError, _Failed, *passed)):
                raise
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> _Failed:
        where = f"the catalog of connection {self._rule.connection!r}"
        text = " ".join(str(getattr(error, "orig", None) or error).split())[:_MAX_TEXT] or type(error).__name__
        if isinstance(error, NoSuchNamespaceError):
            namespace = self._rule.table.rpartition(".")[0]
            return _Failed(
                "TableUnusable", f"there is no namespace {namespace!r} in {where}. Create it, or correct table"
            )
        if isinstance(error, NoSuchTableError):
            remedy = "Create it, correct table, or let the rule create it: columns: {order_id: string, ...}"
            return _Failed("TableUnusable", f"there is no table {self._rule.table!r} in {where}. {remedy}")
        if isinstance(error, HistoryExpired):
            return _Failed("MessageRefused", f"{self._where} {_EXPIRED}")
        if isinstance(error, TooManyRequestsError):
            return _Failed(None, f"{where}: {text}", 429)
        for kinds, error_class in _ERROR_CLASSES:
            if isinstance(error, kinds):
                return _Failed(error_class, f"{where}: {text}")
        return _Failed("IcebergError", f"{self._where}: {text}")


_EXPIRED: Final = (
    "no longer has the snapshots of the time since the deliveries were planned, and may have their rows. Check the "
    "table, and redrive the deliveries if their rows are missing. Keep snapshots for longer than deliveries may wait"
)
#: Errors after which it is certain that nothing was committed.
_REFUSED: Final = (
    BadRequestError,
    ForbiddenError,
    NoSuchTableError,
    OAuthError,
    TooManyRequestsError,
    UnauthorizedError,
)
_ERROR_CLASSES: Final[Sequence[tuple[tuple[type[Exception], ...], str]]] = (
    ((UnauthorizedError, ForbiddenError, OAuthError), "NotAuthorized"),
    ((CommitStateUnknownException,), "CommitUnknown"),
    ((ServerError, ServiceUnavailableError, RequestException, OperationalError), "CatalogUnavailable"),
    ((SQLAlchemyError,), "CatalogError"),
    ((OSError,), "FileError"),
)


def _rejected_by(snapshot: Snapshot, rejected_now: Mapping[int, str]) -> Mapping[int, str]:
    """Return why deliveries of a stored span have no row: the table may have other columns now than it had then."""
    text = snapshot.summary.get(REJECTED) if snapshot.summary is not None else None
    if not text:
        return {}
    gone = "the payload did not fit the columns that the table had when the others of its span were stored"
    return {number: rejected_now.get(number, gone) for number in sorted(numbers_of_text(text))}


def open_iceberg(opening: TargetSetup[IcebergFields]) -> IcebergTarget:
    """Return an Iceberg target; reads its connection now. Raises ConnectionUnusable if it cannot be used."""
    target = opening.target
    use = f"target {target.name!r} of rule {opening.rule!r}"
    connection = opening.connections(target.connection)
    opener = catalog_opener(connection, use, opening.locations, target.timeout_seconds)
    return IcebergTarget(
        target, opener, secrets=secrets_of(connection), locations=opening.locations, clock=opening.clock
    )
