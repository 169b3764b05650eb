"""Reads dead letters back out of the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from eventbridge import rowset
from eventbridge.errors import NotFoundError
from eventbridge.stages.letter_files import dead_letter_files, read_letters
from eventbridge.stages.selection import SELECTED_BY, Selection, checked_name, is_named, name_of
from eventbridge.stages.workplace import Workplace
from eventbridge.store import schemas

_LONG_COLUMNS = ("event", "request", "request_headers", "attempts")
_LIST_COLUMNS = [name for name in schemas.DEAD_LETTER.names if name not in _LONG_COLUMNS]
_NAME_COLUMNS = ["delivery_id", "rule", "target", "reason", "bus", "topic", "broker", "queue_id", "offset"]
_LISTED_CANDIDATES = 10


@dataclass(frozen=True)
class DeadLetterName:
    """Where one dead letter lies, and how a person names it: by delivery id or, Malformed, by where its event lies."""

    name: str
    about: str  # rule/target and reason
    file: str
    row: int


@dataclass(frozen=True)
class Letter:
    """One dead letter: its file in the store, its row there, and its columns; the long ones only if asked for."""

    file: str
    row: int
    record: dict[str, Any]


def dead_letters(
    work: Workplace, selection: Selection | None = None, *, whole: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the columns of the selected dead letters; see `letters`."""
    return (letter.record for letter in letters(work, selection, whole=whole))


def letters(work: Workplace, selection: Selection | None = None, *, whole: bool = False) -> Iterator[Letter]:
    """Yield the selected dead letters, those of the newest batch first; `whole` = with event, request and attempts.

    Raises UserError if the selection's SQL is no condition.
    """
    chosen = Chosen(work, selection or Selection(), dead_letter_files(work))
    for file in chosen.files:
        rows = chosen.rows_of(file)
        if rows:
            columns = None if whole else _LIST_COLUMNS
            found = read_letters(work.store, file, rowset.encode(rows), columns).to_pylist()
            yield from (Letter(file, row, record) for row, record in zip(rows, found, strict=True))


class Chosen:
    """Which rows of some dead letter files a selection chooses; SQL is asked once, about all of them."""

    def __init__(self, work: Workplace, selection: Selection, files: list[str]) -> None:
        self.files = files
        self._work = work
        self._selection = selection
        self._keys: set[tuple[Any, ...]] | None = None
        if selection.sql is not None and files:
            from eventbridge.store.dead_letter_sql import keys_where  # DuckDB is needed here only

            self._keys = keys_where(
                lambda file, columns: read_letters(work.store, file, columns=columns), files, selection.sql
            )

    def rows_of(self, file: str) -> list[int]:
        """Return the chosen rows of a file, in ascending order."""
        columns = [*SELECTED_BY, "batch_id"]
        if self._selection.error is not None:
            columns.append("attempts")  # with their answers: long
        records = read_letters(self._work.store, file, columns=columns).to_pylist()
        return [row for row, each in enumerate(records) if self._selection.fits(each) and self._meets_sql(each)]

    def _meets_sql(self, record: dict[str, Any]) -> bool:
        if self._keys is None:
            return True
        from eventbridge.store.dead_letter_sql import KEY

        return tuple(name_of(record) if column == "name" else record[column] for column in KEY) in self._keys


def find_dead_letters(work: Workplace, name: str) -> list[DeadLetterName]:
    """Return the dead letters that `name` names, the newest batch's first: several if a delivery died several times.

    `name` is a delivery id or its beginning, or where the event lies: `<bus>/<topic>/<queue>/<offset>`, the bus may
    be left out. Raises UserError for what is neither, NotFoundError if nothing, or more than one delivery, has it.
    """
    found = list(_named(work, checked_name(name)))
    names = dict.fromkeys(each.name for each in found)
    if not found:
        raise NotFoundError(f"there is no dead letter {name!r}. `eventbridge dead-letters list` shows the newest.")
    if len(names) > 1:
        listed = [f"  {each.name}  {each.about}" for each in found[:_LISTED_CANDIDATES]]
        more = [f"  and {len(found) - _LISTED_CANDIDATES} more"] if len(found) > _LISTED_CANDIDATES else []
        raise NotFoundError("\n".join([f"{name!r} is the name of {len(names)} dead letters:", *listed, *more]))
    return found


def read_dead_letter(work: Workplace, found: DeadLetterName) -> dict[str, Any]:
    """Return one dead letter whole."""
    (record,) = read_letters(work.store, found.file, rowset.encode([found.row])).to_pylist()
    return dict(record)


def _named(work: Workplace, wanted: str) -> Iterator[DeadLetterName]:
    for file in dead_letter_files(work):
        for row, record in enumerate(read_letters(work.store, file, columns=_NAME_COLUMNS).to_pylist()):
            if is_named(record, wanted):
                about = f"{record['rule']}/{record['target']} " if record["rule"] else ""
                yield DeadLetterName(name_of(record), about + record["reason"], file, row)
