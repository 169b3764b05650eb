"""Reads dead letters back out of the store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from eventbridge import rowset
from eventbridge.errors import NotFoundError, UserError
from eventbridge.identity import delivery_id_text
from eventbridge.stages.workplace import Workplace
from eventbridge.store import schemas
from eventbridge.store.parquet import read_rows, read_table

#: Why a delivery, or an event that never became one, is given up.
REASONS = (
    "MaximumRetryAttempts",
    "MaximumEventAge",
    "NonRetryable",
    "TransformFailed",
    "RouteFailed",
    "Malformed",
    "TargetGone",
    "RuleRemoved",
)

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


def dead_letters(
    work: Workplace,
    *,
    rule: str | None = None,
    target: str | None = None,
    reason: str | None = None,
    whole: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield dead letters, those of the newest batch first; `whole` = with event, request and attempts."""
    for file in _files(work):
        for record in read_table(work.store, file, columns=None if whole else _LIST_COLUMNS).to_pylist():
            if (
                rule in (None, record["rule"])
                and target in (None, record["target"])
                and reason in (None, record["reason"])
            ):
                yield record


def name_of(record: dict[str, Any]) -> str:
    """Return the delivery id or, of an event that never became a delivery, `<bus>/<topic>/<queue>/<offset>`."""
    return _place(record) if record["delivery_id"] is None else delivery_id_text(record["delivery_id"])


def find_dead_letters(work: Workplace, name: str) -> list[DeadLetterName]:
    """Return the dead letters that `name` names, the newest batch's first: several if a delivery died several times.

    `name` is a delivery id or its beginning, or where the event lies: `<bus>/<topic>/<queue>/<offset>`, the bus may
    be left out. Raises UserError for what is neither, NotFoundError if nothing, or more than one delivery, has it.
    """
    wanted = name.strip().lower()
    by_place = "/" in wanted
    if not by_place and not re.fullmatch(r"[0-9a-f-]+", wanted):
        raise UserError(
            f"{name!r} names no dead letter. Write a delivery id or its beginning, or <topic>/<queue>/<offset> "
            "of the event, as `eventbridge dead-letters list` shows them."
        )
    found = list(_named(work, wanted, by_place=by_place))
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
    (record,) = read_rows(work.store, found.file, rowset.encode([found.row])).to_pylist()
    return dict(record)


def _named(work: Workplace, wanted: str, *, by_place: bool) -> Iterator[DeadLetterName]:
    digits = wanted.replace("-", "")
    for file in _files(work):
        for row, record in enumerate(read_table(work.store, file, columns=_NAME_COLUMNS).to_pylist()):
            if by_place:
                right = f"/{_place(record)}".lower().endswith(f"/{wanted.strip('/')}")
            else:
                right = record["delivery_id"] is not None and record["delivery_id"].hex().startswith(digits)
            if right:
                about = f"{record['rule']}/{record['target']} " if record["rule"] else ""
                yield DeadLetterName(name_of(record), about + record["reason"], file, row)


def _place(record: dict[str, Any]) -> str:
    parts = (record["bus"], record["topic"], record["broker"], str(record["queue_id"]), str(record["offset"]))
    return "/".join(part for part in parts if part)


def _files(work: Workplace) -> Iterator[str]:
    for batch in work.ledger.batches(limit=None):
        for file in work.ledger.files(batch.batch_id, "dead_letter"):
            if file.path is not None:
                yield file.path
