"""Chooses the events that a replay takes from an archive file, by offset, pattern, SQL and outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.delivery.segments import segments
from eventbridge.errors import ReconciliationError
from eventbridge.event.cloudevent import parse_event
from eventbridge.event.ids import delivery_id
from eventbridge.matching import Matcher, compile_rules
from eventbridge.matching.consistency import flatten
from eventbridge.matching.pattern import Pattern, parse_pattern
from eventbridge.matching.reference import matches_leaves
from eventbridge.matching.scan.texts import padded_texts
from eventbridge.model.erasure import ERASED_BODY
from eventbridge.model.redelivery import Replay, ReplayPart
from eventbridge.pipeline.settle.settlement import settlements
from eventbridge.replay.archive import FileToRead
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.columns import flag_column
from eventbridge.store.parquet import read_table
from eventbridge.store.queries import COLUMNS, rows_where

Mask = npt.NDArray[np.bool_]

DELIVERED = "delivered"
_PENDING = "pending"

#: The maximum number of batches whose outcomes are cached: enough for files that are read in sequence.
_MAX_CACHED_BATCHES = 8


class Chooser:
    """Chooses events for one part of a replay."""

    def __init__(self, runtime: Runtime, replay: Replay, part: ReplayPart) -> None:
        self._runtime = runtime
        self._replay = replay
        self._part = part
        pattern = replay.selection.get("pattern")
        self._pattern: Pattern | None = None if pattern is None else parse_pattern(pattern)
        self._matcher: Matcher | None = None if self._pattern is None else compile_rules([self._pattern])
        self._sql: str | None = replay.selection.get("sql")
        self._past: Past | None = None
        if replay.skip_delivered or self._sql is not None:
            self._past = Past(runtime, part.rule, part.target, codes="code" in (self._sql or "").lower())

    def events(self, archived: FileToRead, first: int) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """Return the events to take from a file, in file order, starting at row `first`, and their row numbers."""
        file, spans = archived
        table = read_table(self._runtime.store, file.path).slice(first)
        chosen = np.array(pc.equal(table["status"], "valid").to_numpy(), np.bool_)
        chosen &= np.array(pc.not_equal(table["body"], ERASED_BODY).to_numpy(), np.bool_)
        if spans is not None:
            chosen = chosen & _in_spans_mask(table["offset"].to_numpy(), spans)
        if self._matcher is not None:
            chosen[chosen] = self._match(table.filter(flag_column(chosen)))
        if self._past is not None:
            chosen[chosen] = self._choose_by_outcome(table.filter(flag_column(chosen)), file.batch_id, self._past)
        rows: npt.NDArray[np.int64] = np.flatnonzero(chosen).astype(np.int64)
        return table.filter(flag_column(chosen)), rows + first

    def _match(self, events: pa.Table) -> Mask:
        mask = np.zeros(events.num_rows, np.bool_)
        if not events.num_rows or self._matcher is None or self._pattern is None:
            return mask
        found = self._matcher.match_texts(padded_texts(events["body"]))
        mask[np.diff(found.offsets) > 0] = True
        for number in found.malformed:  # valid events that the kernel cannot read; the reference matcher decides
            event = parse_event(events["body"][int(number)].as_py(), max_bytes=self._runtime.settings.event_max_size)
            mask[number] = matches_leaves(self._pattern, flatten(event.document))
        return mask

    def _choose_by_outcome(self, events: pa.Table, batch_id: str, past: Past) -> Mask:
        """Return which events to take, given the outcomes of their deliveries to the part's target."""
        if not events.num_rows:
            return np.zeros(0, np.bool_)
        rule, target = self._part.rule, self._part.target
        names = zip(events["source"].to_pylist(), events["event_id"].to_pylist(), strict=True)
        ids = [delivery_id(self._replay.bus, source, event_id, rule, target) for source, event_id in names]
        outcomes = past.outcomes(batch_id)
        found = [outcomes.get(each) for each in ids]
        chosen = np.ones(events.num_rows, np.bool_)
        if self._replay.skip_delivered:
            chosen &= [each is None or each.outcome != DELIVERED for each in found]
        if self._sql is not None:
            chosen &= rows_where(self._condition_table(events, batch_id, found), self._sql)
        return chosen

    def _condition_table(self, events: pa.Table, batch_id: str, found: Sequence[PastOutcome | None]) -> pa.Table:
        """Return the events as the table that the SQL condition reads, with the outcomes of their deliveries."""
        count = events.num_rows
        shared = {"rule": self._part.rule, "target": self._part.target, "bus": self._replay.bus, "batch_id": batch_id}
        asked = ("outcome", "reason", "code", "attempts", "delivered_at")
        columns: dict[str, Any] = {name: [text] * count for name, text in shared.items()}
        columns |= {name: [None if each is None else getattr(each, name) for each in found] for name in asked}
        taken = {name: events[name] for name in COLUMNS.names if name in events.column_names}
        made = {name: pa.array(values, COLUMNS.field(name).type) for name, values in columns.items()}
        every = {**taken, "event": events["body"], **made}
        return pa.table([every[name] for name in COLUMNS.names], schema=COLUMNS)


def _in_spans_mask(offsets: npt.NDArray[np.int64], spans: tuple[tuple[int, int], ...]) -> Mask:
    mask = np.zeros(len(offsets), np.bool_)
    for start, end in spans:
        mask |= (offsets >= start) & (offsets < end)
    return mask


@dataclass(frozen=True)
class PastOutcome:
    """The outcome of a delivery (`delivered`, `dead_lettered` or `pending`), with its reason and number of attempts.

    `code` is the HTTP status of the last attempt that was sent, or None if there was none or segments were not read.
    """

    outcome: str
    reason: str | None
    attempts: int
    delivered_at: datetime | None
    code: int | None = None


class Past:
    """Returns the outcomes of deliveries to one target of a rule, by the batch that landed their events."""

    def __init__(self, runtime: Runtime, rule: str, target: str, *, codes: bool = False) -> None:
        self._runtime = runtime
        self._rule, self._target = rule, target
        self._codes = codes
        self._known: dict[str, Mapping[bytes, PastOutcome]] = {}

    def outcomes(self, batch_id: str) -> Mapping[bytes, PastOutcome]:
        """Return the outcomes of a batch's deliveries by id, including those in batches that took them up later."""
        found = self._known.pop(batch_id, None)
        if found is None:
            found = self._follow(batch_id)
        self._known[batch_id] = found
        while len(self._known) > _MAX_CACHED_BATCHES:
            self._known.pop(next(iter(self._known)))
        return found

    def _follow(self, batch_id: str) -> Mapping[bytes, PastOutcome]:
        found: dict[bytes, PastOutcome] = {}
        for each in self._generations(batch_id):  # oldest first: the last outcome counts, but `delivered` is final
            codes = self._codes_of(each) if self._codes else {}
            for row in self._settled_rows(each):
                name, status = row["delivery_id"], row["status"]
                if name not in found or found[name].outcome != DELIVERED:
                    found[name] = PastOutcome(
                        outcome=status if status in (DELIVERED, "dead_lettered") else _PENDING,
                        reason=row["reason"],
                        attempts=row["attempts"],
                        delivered_at=row["settled_at"] if status == DELIVERED else None,
                        code=codes.get(name, found[name].code if name in found else None),
                    )
        return found

    def _generations(self, batch_id: str) -> list[str]:
        """Return a batch and all batches that took up its deliveries, directly or indirectly, oldest first."""
        known: set[str] = set()
        newest = {batch_id}
        while newest:
            known |= newest
            newest = {later for each in newest for later in self._later_batches(each)} - known
        return sorted(known)  # batch ids sort by planning time

    def _settled_rows(self, batch_id: str) -> Iterator[dict[str, Any]]:
        if self._runtime.ledger.batches.get(batch_id).kept != "all":
            raise ReconciliationError(
                f"the outcomes of batch {batch_id} are past their retention: a replay cannot filter by them. "
                "Cancel this replay, and begin one without --sql and --skip-delivered"
            )
        columns = ["delivery_id", "rule", "target", "status", "reason", "attempts", "settled_at"]
        for _, table in settlements(self._runtime, batch_id, columns):
            yield from self._target_rows(table).to_pylist()

    def _codes_of(self, batch_id: str) -> dict[bytes, int | None]:
        found: dict[bytes, int | None] = {}
        for file in segments(self._runtime, batch_id):
            if file.path is not None:
                table = read_table(self._runtime.store, file.path, ["delivery_id", "rule", "target", "sent", "code"])
                rows = self._target_rows(table).to_pylist()
                found |= {row["delivery_id"]: row["code"] for row in rows if row["sent"]}
        return found

    def _target_rows(self, table: pa.Table) -> pa.Table:
        for name, value in {"rule": self._rule, "target": self._target}.items():
            table = table.filter(pc.equal(table[name], value))
        return table

    def _later_batches(self, batch_id: str) -> set[str]:
        """Return the batches that took up the pending, deferred or dead-lettered deliveries of a batch."""
        ledger = self._runtime.ledger
        of_target = (
            row
            for row in ledger.pending.list_for_batch(batch_id)
            if (row.rule, row.target) == (self._rule, self._target)
        )
        found = {row.closed_by for row in of_target}
        found |= {row.closed_by for row in ledger.deferred_matches.list_for_batch(batch_id) if row.rule == self._rule}
        dead_letters = [
            file.path for file in ledger.files.list_for_batch(batch_id, "dead_letter") if file.path is not None
        ]
        if dead_letters:
            redriven = ledger.redrives.list_taken()
            found |= {taken.batch_id for path in dead_letters for taken in redriven.get(path, [])}
        return {each for each in found if each is not None}
