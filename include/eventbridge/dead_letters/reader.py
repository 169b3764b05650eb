"""Reads dead letters from the store: those that a selection chooses, pages of them, and one by its name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from eventbridge.dead_letters.selection import SELECTED_BY, Selection, is_named, name_of, normalize_name, subject_of
from eventbridge.errors import NotFoundError, RuleFileError
from eventbridge.model import rowset
from eventbridge.model.cursor import read_cursor, write_cursor
from eventbridge.model.erasure import is_erased
from eventbridge.runtime.batch_files import (
    Damaged,
    cursor_at,
    dead_letter_files,
    files_from,
    newest_files,
    parts_unless_damaged,
    read_dead_letters,
    read_unless_damaged,
    rows_after,
)
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.visibility import visibility_of
from eventbridge.similar_names import suggest
from eventbridge.store import schemas
from eventbridge.store.columns import plain_rows
from eventbridge.store.queries import KEY, keys_where

_LONG_COLUMNS = ("event", "request", "request_headers", "attempts")
_LIST_COLUMNS = [name for name in schemas.DEAD_LETTER.names if name not in _LONG_COLUMNS]
_NAME_COLUMNS = [
    "delivery_id", "rule", "target", "reason", "bus", "topic", "broker", "partition_id", "offset", "batch_id",
    "source", "event_id",
]  # fmt: skip
_LISTED_CANDIDATES = 10

#: The maximum number of dead letter files that one page reads.
PAGE_FILES = 100

#: Matches where an error becomes specific to one delivery: at a number of four or more digits, an address, a time, a
#: quotation mark or an opening bracket.
_OF_ONE = re.compile(r"\d{4,}|\d+(?=[.:\-]\d)|['\"{\[(]")
_LONGEST = 100


@dataclass(frozen=True)
class DeadLetterName:
    """The unique name of a dead letter, its subject, and its file and row.

    `subject` is the delivery id or, without one, the position of the event. Several dead letters have the same subject
    if a delivery was dead-lettered several times.
    """

    name: str
    subject: str
    about: str  # rule/target and reason
    file: str
    row: int


@dataclass(frozen=True)
class DeadLetter:
    """One dead letter: its file in the store, its row there, and its columns, the long ones only on request."""

    file: str
    row: int
    record: dict[str, Any]


def select_dead_letters(
    runtime: Runtime, selection: Selection | None = None, *, whole: bool = False, damaged: Damaged | None = None
) -> Iterator[DeadLetter]:
    """Yield the selected dead letters, newest batch first; if `whole`, with event, request and attempts.

    An unreadable file is skipped and added to `damaged`; if `damaged` is None, ReconciliationError is raised instead.
    Raises UserError if the selection's SQL is not a condition.
    """
    selection = selection or Selection()
    has_sql = selection.sql is not None  # SQL is evaluated over all files together
    files = dead_letter_files(runtime) if has_sql else []
    chosen = ChosenRows(runtime, selection, files, damaged)
    newest = (each.path for each in newest_files(runtime, "dead_letter", "dead_letters"))
    for file in files if has_sql else newest:
        yield from _read_file(runtime, file, list(chosen.rows_of(file)), None if whole else _LIST_COLUMNS, damaged)


@dataclass(frozen=True)
class DeadLetterPage:
    """A page of dead letters; `cursor` leads to the next page, and is None on the last page."""

    dead_letters: tuple[DeadLetter, ...]
    cursor: str | None

    def records(self) -> list[dict[str, Any]]:
        """Return the columns of each dead letter."""
        return [each.record for each in self.dead_letters]


def dead_letter_page(
    runtime: Runtime,
    selection: Selection,
    limit: int,
    after: str | None = None,
    *,
    damaged: Damaged | None = None,
    max_files: int = PAGE_FILES,
) -> DeadLetterPage:
    """Return at most `limit` selected dead letters after a cursor, starting with the newest batch.

    At most `max_files` files are read, so a page with a cursor may be short or empty. The selection must have no SQL.
    Raises UserError for an invalid cursor.
    """
    found: list[DeadLetter] = []
    cursor = read_cursor(after) if after else None
    last = cursor
    chosen = ChosenRows(runtime, selection, [], damaged)
    for count, file in enumerate(files_from(runtime, "dead_letter", "dead_letters", cursor)):
        if count == max_files:
            return DeadLetterPage(tuple(found), write_cursor(cursor_at(file)))
        rows = list(islice(chosen.rows_of(file.path, rows_after(cursor, file)), limit + 1 - len(found)))
        for dead_letter in _read_file(runtime, file.path, rows, _LIST_COLUMNS, damaged):
            if len(found) == limit and last is not None:
                return DeadLetterPage(tuple(found), write_cursor(last))
            found.append(dead_letter)
            last = cursor_at(file, dead_letter.row)
    return DeadLetterPage(tuple(found), None)


def _read_file(
    runtime: Runtime, file: str, rows: list[int], columns: list[str] | None, damaged: Damaged | None
) -> Iterator[DeadLetter]:
    table = read_unless_damaged(runtime.store, file, rowset.encode(rows), columns, damaged=damaged) if rows else None
    if table is not None:
        yield from (DeadLetter(file, *each) for each in zip(rows, plain_rows(table), strict=True))


class ChosenRows:
    """The rows of dead letter files that a selection chooses and the caller may see; SQL is evaluated once, over all.

    An unreadable file is added to `damaged`; if `damaged` is None, ReconciliationError is raised instead.
    """

    def __init__(
        self, runtime: Runtime, selection: Selection, files: list[str], damaged: Damaged | None = None
    ) -> None:
        self.files = files
        self._damaged = damaged
        self._runtime = runtime
        self._selection = selection
        self._visibility = visibility_of(runtime)
        self._keys: set[tuple[Any, ...]] | None = None
        if selection.sql is not None:  # SQL is evaluated even without files, so that invalid SQL is reported
            self._keys = keys_where(
                lambda file, columns: read_unless_damaged(runtime.store, file, columns=columns, damaged=damaged),
                files,
                selection.sql,
            )

    def records_of(self, file: str) -> list[tuple[int, dict[str, Any]]]:
        """Return the chosen rows of a file, in ascending order, each with the columns SELECTED_BY and `batch_id`.

        Returns none if any part of the file is unreadable.
        """
        found = list(self._choose(file))
        return [] if self._damaged is not None and file in self._damaged else found

    def rows_of(self, file: str, after: int = -1) -> Iterator[int]:
        """Yield the chosen rows of a file after a row, in ascending order, up to the first unreadable part of the file.

        The file is read only as far as the caller iterates.
        """
        return (row for row, _ in self._choose(file) if row > after)

    def _choose(self, file: str) -> Iterator[tuple[int, dict[str, Any]]]:
        columns = [*SELECTED_BY, "batch_id"]
        if self._selection.error is not None:
            columns.append("attempts")  # these are long, because they include responses
        for numbers, table in parts_unless_damaged(self._runtime.store, file, columns, damaged=self._damaged):
            for row, record in zip(numbers.tolist(), plain_rows(table), strict=True):
                if self._fits(record):
                    record.pop("attempts", None)
                    yield row, record

    def _fits(self, record: dict[str, Any]) -> bool:
        if is_erased(record):
            return False
        return self._selection.fits(record) and self._visibility.dead_letter(record) and self._meets_sql(record)

    def _meets_sql(self, record: dict[str, Any]) -> bool:
        if self._keys is None:
            return True
        return tuple(name_of(record) if column == "name" else record[column] for column in KEY) in self._keys


def find_dead_letters(runtime: Runtime, name: str, damaged: Damaged | None = None) -> list[DeadLetterName]:
    """Return the dead letters with the given name, newest batch first; a delivery may have several.

    `name` is a result of `name_of`, a delivery id or its beginning, or the position of the event,
    `<bus>/<topic>/<partition>/<offset>` (the bus is optional). An unreadable file is skipped and added to `damaged`; if
    `damaged` is None, ReconciliationError is raised instead. Raises UserError for an invalid name, and NotFoundError if
    no dead letter has the name, or if dead letters of several deliveries or positions have it.
    """
    found = list(_find_named(runtime, normalize_name(name), damaged))
    subjects = {each.subject for each in found}
    if not found:
        among = " in the files that can be read" if damaged else ""
        raise NotFoundError(
            f"there is no dead letter {name!r}{among}. `eventbridge dead-letters list` shows the newest."
        )
    if len(subjects) > 1:
        listed = [f"  {each.name}  {each.about}" for each in found[:_LISTED_CANDIDATES]]
        more = [f"  and {len(found) - _LISTED_CANDIDATES} more"] if len(found) > _LISTED_CANDIDATES else []
        raise NotFoundError("\n".join([f"{name!r} is the name of {len(found)} dead letters:", *listed, *more]))
    return found


def whole_dead_letters(runtime: Runtime, dead_letters: Sequence[DeadLetter], damaged: Damaged) -> list[dict[str, Any]]:
    """Return dead letters with all columns.

    Those of an unreadable file are left out, and the file is added to `damaged`.
    """
    whole: list[dict[str, Any]] = []
    for file, of_file in groupby(dead_letters, key=lambda each: each.file):
        rows = rowset.encode([each.row for each in of_file])
        table = read_unless_damaged(runtime.store, file, rows, damaged=damaged)
        whole += [] if table is None else plain_rows(table)
    return whole


def read_dead_letter(runtime: Runtime, file: str, row: int) -> dict[str, Any]:
    """Return one dead letter with all columns. Raises ReconciliationError if its file cannot be read."""
    (record,) = plain_rows(read_dead_letters(runtime.store, file, rowset.encode([row])))
    return record


def _find_named(runtime: Runtime, wanted: str, damaged: Damaged | None) -> Iterator[DeadLetterName]:
    visibility = visibility_of(runtime)
    for file in dead_letter_files(runtime):
        table = read_unless_damaged(runtime.store, file, columns=_NAME_COLUMNS, damaged=damaged)
        for row, record in enumerate([] if table is None else table.to_pylist()):
            if is_named(record, wanted) and not is_erased(record) and visibility.dead_letter(record):
                about = f"{record['rule']}/{record['target']} " if record["rule"] else ""
                yield DeadLetterName(name_of(record), subject_of(record), about + record["reason"], file, row)


@dataclass(frozen=True)
class DeadLetterGroup:
    """The number of dead letters that share a rule, a target, a reason, and the beginning of their error."""

    rule: str | None
    target: str | None
    reason: str
    error: str
    count: int


def dead_letter_groups(records: Iterable[Mapping[str, Any]]) -> list[DeadLetterGroup]:
    """Return the groups of dead letters, the largest first."""
    counts = Counter((each["rule"], each["target"], each["reason"], _error_of(each["detail"])) for each in records)
    return [DeadLetterGroup(*key, count) for key, count in counts.most_common()]


def _error_of(detail: str | None) -> str:
    """Return the beginning of an error, up to what is specific to one delivery.

    A selection by this text as `error` finds all dead letters of the group.
    """
    return _OF_ONE.split(detail or "", maxsplit=1)[0][:_LONGEST].strip()


def refuse_unknown_names(runtime: Runtime, rule: str | None, target: str | None) -> None:
    """Raise NotFoundError, with a similar name, for a rule or target that neither a rule file nor a dead letter names.

    A removed rule may have dead letters. They are searched only if the current files lack the name.
    """
    try:
        rules = runtime.rule_set().rules
    except RuleFileError:  # dead letters can be delivered while rule files are being edited
        rules = {}
    targets = {name for each in rules.values() for name in each.destinations}
    if rule is not None and rule not in rules and not _has_dead_letters(runtime, Selection(rule=rule)):
        raise NotFoundError(
            f"no rule file defines a rule {rule!r}, and no dead letter names it. {suggest('Rules', rule, rules)}"
        )
    if rule is not None and rule in rules and target is not None:
        targets = set(rules[rule].destinations)
    if (
        target is not None
        and target not in targets
        and not _has_dead_letters(runtime, Selection(rule=rule, target=target))
    ):
        of = f"the rule {rule!r} has no" if rule is not None else "no rule file defines a"
        raise NotFoundError(
            f"{of} target {target!r}, and no dead letter names it. {suggest('Targets', target, targets)}"
        )


def _has_dead_letters(runtime: Runtime, selection: Selection) -> bool:
    return next(iter(select_dead_letters(runtime, selection, damaged={})), None) is not None
