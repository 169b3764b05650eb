"""Implements the Delta target, which writes each span as one transaction that a repetition finds in the table.

A transaction has an application id and a version (Delta's transaction identifiers), which the table keeps beside its
files. The application id is the name of the span, so that spans may be written in any order, by any number of push
tasks; of two transactions with the same id that run at the same time, Delta lets one fail. The version is the number of
rejected rows: 0 says that all rows of the span are in the table.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote
from uuid import UUID

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction, write_deltalake
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)

from eventbridge.clients.s3.access import S3Access, S3Clients
from eventbridge.clients.s3.errors import what_it_is
from eventbridge.errors import InfrastructureError, UserError
from eventbridge.fault_points import reach
from eventbridge.model.outcome import Response
from eventbridge.targets.arrow_rows import ConvertedRows, RowConverter, arrow_type
from eventbridge.targets.delta.constraints import VIOLATED, computed_columns, reject_computed, reject_violations
from eventbridge.targets.delta.fields import DeltaFields, folder_of, obstacle_of
from eventbridge.targets.open import TargetSetup
from eventbridge.targets.partitions import reject_long_partitions
from eventbridge.targets.protocol import DeliverySpan, Request, SpanResponse

#: The maximum number of deliveries that `deliver` writes in one transaction.
_MAX_TOGETHER: Final = 100
#: How often a transaction is tried if another one comes before it with which it conflicts.
_MAX_CONFLICTS: Final = 5
#: How long a table that is created keeps the ids of transactions: a span is not sent again after so long.
_KEPT_TRANSACTIONS: Final = "interval 90 days"
#: How many times, and for how long, the state of an open table is only brought up to date. Each commit adds to its size
#: in memory, and it does not show that the table was removed and replaced by another.
_MAX_USES: Final = 50
_MAX_AGE: Final = timedelta(minutes=1)
#: One commit in so many also removes expired files of the log, because looking for them takes as long as a commit.
_CLEANED: Final = 10
#: The fields of a commit by which the rejected rows of a span are found again.
_SPAN: Final = "eventbridge_span"
_REJECTED: Final = "eventbridge_rejected"
#: The numbers of the newest commits that are searched for them, one after the other; the last one means all.
_SEARCHED: Final = (64, 1_024, None)
#: The application id of the transactions that claim upkeep; their version is the time in seconds.
_MAINTAINED: Final = "eventbridge:maintain"
_FORGOTTEN: Final = (
    "the table has rows of the span of this delivery, but its log no longer shows which. Look for the delivery's row, "
    "and redrive the delivery if it is missing. Set delta.logRetentionDuration to longer than deliveries may wait"
)
_MAX_TEXT: Final = 500


class TableUnusable(Exception):
    """Rows cannot be written to the table; the message says why, and what to do."""


@dataclass
class Place:
    """Where a table is: a folder on this machine, or a prefix in S3 with access to it."""

    uri: str
    folder: Path | None = None
    access: S3Access | None = None
    timeout_seconds: float = 30.0
    _clients: S3Clients | None = None

    def options(self) -> Mapping[str, str]:
        """Return the options for the table's storage, with credentials that are valid now."""
        if self.access is None:
            return {}
        if self._clients is None:
            self._clients = S3Clients(self.access, attempts=1, read_seconds=self.timeout_seconds)
        return self._clients.object_store_options(self.timeout_seconds)


@dataclass
class _Opened:
    """A table that stays open between spans."""

    table: DeltaTable
    options: Mapping[str, str]
    at: datetime
    uses: int = 0


class DeltaTarget:
    """Writes the rows of a span in one transaction; a table in a folder is then synced to the disk."""

    flush_every = 1

    def __init__(self, place: Place, rule: DeltaFields, *, clock: Callable[[], datetime]) -> None:
        self._place = place
        self._rule = rule
        self._clock = clock
        self._opened: _Opened | None = None
        self.more_of_response = 0

    def deliver_span(self, span: DeliverySpan, until: datetime) -> SpanResponse | None:
        """Write a span as one transaction, see `protocol.SpanTarget`."""
        if self._clock() >= until:
            return None
        found, response = self._timed(lambda: self._store_span(span, until))
        ids = span.delivery_ids
        return SpanResponse(response(None), {ids[number].as_py(): response(why) for number, why in found.items()})

    def deliver(self, requests: Sequence[Request], until: datetime) -> Generator[tuple[int, Response], None, None]:
        """Write every request, up to 100 in one transaction, each under its own id; see `protocol.Target`."""
        waiting = iter(requests)
        while self._clock() < until:
            group = list(itertools.islice(waiting, _MAX_TOGETHER))
            if not group:
                return
            found, response = self._timed(lambda group=group: self._store_requests(group, until))  # type: ignore[misc]
            for left, number in zip(range(len(group) - 1, -1, -1), range(len(group)), strict=True):
                self.more_of_response = left
                yield group[number].index, response(found.get(number))

    def flush(self) -> None:
        """Return immediately, because a response is given only to rows that are durable."""

    def check(self) -> str | None:
        """Return why no row could be written, or None if the table is there or would be created; writes nothing."""
        try:
            self._converter(self._table())
        except TableNotFoundError:
            return None if self._rule.creates else str(self._missing())
        except Exception as error:  # deltalake raises its own classes, OSError and others
            return self._describe(error).text
        return None

    def maintain(self, every: timedelta) -> bool:
        """Compact small files and remove replaced ones if that is due, see `protocol.Maintainable`.

        A transaction claims it first, because two compactions at the same time would double the rows: deltalake 1.6
        lets both commit.
        """
        now = self._clock()
        try:
            table = self._table()
            last = table.transaction_version(_MAINTAINED)
            if last is not None and now.timestamp() - last < every.total_seconds():
                return False
            claim = Transaction(_MAINTAINED, int(now.timestamp()), int(now.timestamp() * 1_000))
            nothing = pa.schema(table.schema().to_arrow()).empty_table()
            write_deltalake(table, nothing, mode="append", commit_properties=CommitProperties(app_transactions=[claim]))
            table.optimize.compact(max_concurrent_tasks=1)
            table.vacuum(dry_run=False)
            self._sync_all()
        except (CommitFailedError, TableNotFoundError):  # another process was faster; nothing was written yet
            return False
        except Exception as error:  # deltalake raises its own classes, OSError and others
            raise InfrastructureError(self._describe(error).text) from error
        finally:
            self._opened = None
        return True

    def close(self) -> None:
        """Forget the table."""
        self._opened = None

    def _describe(self, error: BaseException) -> Failure:
        if isinstance(error, TableUnusable):
            return Failure("TableUnusable", str(error))
        found = describe(error)
        return Failure(found.error_class, f"the table {self._rule.table!r}: {found.text}")

    def _store_span(self, span: DeliverySpan, until: datetime) -> dict[int, str]:
        """Write a span unless the table has it, and return why rows were rejected, by number."""
        app_id = f"eventbridge:{span.name}"

        def store(table: DeltaTable) -> dict[int, str]:
            stored = table.transaction_version(app_id)
            if stored is not None:
                self._sync_all()
                return self._rejected_before(table, span, app_id, stored) if stored else {}
            rows = self._convert(table, span.delivery_ids, span.payloads)
            return self._write(table, rows, lambda rows: [(app_id, len(rows.rejected))])

        return self._try(store, until)

    def _store_requests(self, requests: Sequence[Request], until: datetime) -> dict[int, str]:
        """Write those requests that the table does not have, and return why rows were rejected, by number."""

        def store(table: DeltaTable) -> dict[int, str]:
            app_ids = [f"eventbridge:{each.delivery_id}" for each in requests]
            numbers = [number for number, each in enumerate(app_ids) if table.transaction_version(each) is None]
            if len(numbers) < len(requests):
                self._sync_all()
            ids = pa.array([UUID(requests[number].delivery_id).bytes for number in numbers], pa.binary())
            rows = self._convert(table, ids, pa.array([requests[number].payload for number in numbers], pa.binary()))

            def transactions(rows: ConvertedRows) -> list[tuple[str, int]]:
                return [(app_ids[number], 0) for place, number in enumerate(numbers) if place not in rows.rejected]

            return {numbers[place]: why for place, why in self._write(table, rows, transactions).items()}

        return self._try(store, until)

    def _try(self, store: Callable[[DeltaTable], dict[int, str]], until: datetime) -> dict[int, str]:
        """Call `store` with the current table, again if another transaction came before it; create a missing table."""
        for number in itertools.count(1):
            try:
                return store(self._current_table())
            except CommitFailedError:
                self._opened = None
                if number >= _MAX_CONFLICTS or self._clock() >= until:
                    raise
        raise AssertionError("the loop ends by itself")

    def _convert(self, table: DeltaTable, ids: pa.Array, payloads: pa.Array) -> ConvertedRows:
        converter = self._converter(table)
        rows = converter.convert(ids, payloads)
        rows = reject_long_partitions(rows, {name: name for name in table.metadata().partition_columns})
        if not (computed := computed_columns(converter.schema)):
            return rows
        return reject_computed(rows, computed, are_ignored=self._rule.new_columns == "ignore")

    def _converter(self, table: DeltaTable) -> RowConverter:
        """Return the converter to rows of the table. Raises TableUnusable if it cannot hold the deliveries' ids."""
        rule, schema = self._rule, pa.schema(table.schema().to_arrow())
        for name in computed_columns(schema):  # the rows have no value there
            schema = schema.set(schema.get_field_index(name), schema.field(name).with_nullable(True))
        converter = RowConverter(schema, rule.table, rule.delivery_id, rule.new_columns)
        if (problem := converter.problem_of_ids) is not None:
            raise TableUnusable(problem)
        return converter

    def _write(
        self,
        table: DeltaTable,
        rows: ConvertedRows,
        transactions: Callable[[ConvertedRows], Sequence[tuple[str, int]]],
    ) -> dict[int, str]:
        """Commit rows, without those that violate a constraint of the table, and return why rows were rejected."""
        if rows.table.num_rows:
            try:
                self._commit(table, rows, transactions(rows))
            except DeltaError as error:
                if VIOLATED not in str(error):
                    raise
                kept = reject_violations(table, rows)
                if kept.table.num_rows == rows.table.num_rows:
                    raise
                return self._write(table, kept, transactions)
        return rows.rejected

    def _commit(self, table: DeltaTable, rows: ConvertedRows, transactions: Sequence[tuple[str, int]]) -> None:
        now = int(self._clock().timestamp() * 1_000)
        metadata: dict[str, str] = {}
        if rows.rejected and len(transactions) == 1:
            metadata = {_SPAN: transactions[0][0], _REJECTED: write_numbers(sorted(rows.rejected))}
        cleans = (table.version() + 1) % _CLEANED == 0
        write_deltalake(
            table,
            rows.table,
            mode="append",
            schema_mode="merge" if rows.added else None,
            post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=None if cleans else False),
            commit_properties=CommitProperties(
                custom_metadata=metadata,
                app_transactions=[Transaction(app_id, version, now) for app_id, version in transactions],
            ),
        )
        if self._place.folder is not None:
            _sync(self._place.folder, table.version())

    def _rejected_before(self, table: DeltaTable, span: DeliverySpan, app_id: str, count: int) -> dict[int, str]:
        """Return the `count` rows that were rejected when the span was written, although its columns may be others now.

        If the log no longer shows them, and the table would reject another number now, all rows count as rejected.
        """
        now = self._convert(table, span.delivery_ids, span.payloads).rejected
        for limit in _SEARCHED:
            for commit in table.history(limit):
                if commit.get(_SPAN) == app_id:
                    why = "the row did not fit the columns that the table had"
                    return {number: now.get(number, why) for number in read_numbers(commit[_REJECTED])}
        if len(now) != count:
            return dict.fromkeys(range(len(span.delivery_ids)), _FORGOTTEN)
        return now

    def _current_table(self) -> DeltaTable:
        """Return the table as it is now; create it if it is missing and the rule allows it."""
        try:
            return self._table()
        except TableNotFoundError:
            if not self._rule.creates:
                raise self._missing() from None
        columns = {self._rule.delivery_id: "string"} | dict(self._rule.columns)
        return DeltaTable.create(
            self._place.uri,
            pa.schema([(name, arrow_type(kind)) for name, kind in columns.items()]),
            mode="ignore",
            partition_by=list(self._rule.partition_by),
            configuration={"delta.setTransactionRetentionDuration": _KEPT_TRANSACTIONS},
            storage_options=dict(self._place.options()),
        )

    def _table(self) -> DeltaTable:
        options, now, opened = self._place.options(), self._clock(), self._opened
        if opened is not None and opened.uses < _MAX_USES and now - opened.at < _MAX_AGE and opened.options == options:
            opened.table.update_incremental()
        else:
            table = DeltaTable(self._place.uri, storage_options=dict(options))
            self._opened = opened = _Opened(table, options, now)
        opened.uses += 1
        return opened.table

    def _missing(self) -> TableUnusable:
        return TableUnusable(
            f"there is no Delta table {self._rule.table!r}. Create it, or let the rule create it: "
            "columns: {order_id: string, amount: double}"
        )

    def _sync_all(self) -> None:
        """Sync the transaction of a push that may have ended before it did so."""
        if self._place.folder is not None:
            os.sync()

    def _timed(self, store: Callable[[], dict[int, str]]) -> tuple[dict[int, str], Callable[[str | None], Response]]:
        """Return what `store` returned, and a function that makes the response to a row from its rejection."""
        reach("target.send")
        started_at = self._clock()
        found: dict[int, str] = {}
        failed: Failure | None = None
        try:
            found = store()
        except BaseException as error:
            # deltalake raises its own classes, OSError and others; a panic of Rust's code is no Exception
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            self._opened = None
            failed = self._describe(error)
        duration_ms = max(0.0, (self._clock() - started_at).total_seconds() * 1_000)
        reach("target.responded")

        def response(rejection: str | None) -> Response:
            if failed is not None:
                return Response(False, started_at, duration_ms, error_class=failed.error_class, error=failed.text)
            if rejection is not None:
                return Response(False, started_at, duration_ms, error_class="MessageRefused", error=rejection)
            return Response(True, started_at, duration_ms)

        return found, response


@dataclass(frozen=True)
class Failure:
    """Why a transaction failed."""

    error_class: str
    text: str


_COLOURS: Final = re.compile(r"\x1b\[\d*m|↳")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>(?:.*?<Message>(.*?)</Message>)?", re.DOTALL)
#: What follows shows rows, or the stack of Rust's code.
_NO_MORE: Final = re.compile(r"\s+(Preview of invalid data|stack backtrace|0: <unknown>).*")
_SIGNED: Final = re.compile(r"(Credential|Signature)=[^,\s]+")


def describe(error: BaseException) -> Failure:
    """Return the class of an error of deltalake or S3, and its text on one line."""
    text = " ".join(_COLOURS.sub(" ", str(error)).split())
    if (code := _CODE.search(text)) is not None:
        text = f"{code[1]}: {what_it_is(code[1], code[2] or '')}"
    text = _NO_MORE.sub("", text)
    text = _SIGNED.sub(r"\1=...", text)[:_MAX_TEXT]
    if isinstance(error, CommitFailedError):
        return Failure("CommitConflict", text)
    if isinstance(error, (DeltaProtocolError, SchemaMismatchError, TableNotFoundError)):
        return Failure("TableUnusable", text)
    return Failure("TableUnavailable", text or type(error).__name__)


def write_numbers(numbers: Sequence[int]) -> str:
    """Return numbers in ascending order as text, such as `3-5,9`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def read_numbers(text: str) -> Iterator[int]:
    """Yield the numbers of a text such as `3-5,9`."""
    for run in filter(None, text.split(",")):
        first, _, last = run.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _sync(folder: Path, version: int) -> None:
    """Sync the files of a commit, and the folders that they are in, to the disk."""
    log = folder / "_delta_log" / f"{version:020}.json"
    actions: list[dict[str, Any]] = [json.loads(line) for line in log.read_bytes().splitlines()]
    files = [log, *(folder / unquote(action["add"]["path"]) for action in actions if "add" in action)]
    for path in dict.fromkeys([*files, *(file.parent for file in files), folder, folder.parent]):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def open_delta(opening: TargetSetup[DeltaFields]) -> DeltaTarget:
    """Return a Delta target; reads its connection now. Raises UserError for a forbidden place or a bad connection."""
    target = opening.target
    if (found := obstacle_of(target, opening.locations)) is not None:
        raise UserError(f"Target {target.name!r} of rule {opening.rule!r}: {found.message}. {found.remedy}.")
    if target.bucket_and_prefix is None:
        folder = Path(folder_of(target, opening.locations).path)
        place = Place(str(folder), folder)
    else:
        access = S3Access.from_connection(opening.connections(target.connection))
        place = Place(target.table, access=access, timeout_seconds=target.timeout_seconds)
    return DeltaTarget(place, target, clock=opening.clock)
