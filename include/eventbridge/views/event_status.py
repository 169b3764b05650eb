"""Returns the status of archived events: that of their deliveries, those that need attention first.

The deliveries of an event are followed through the batches that took them up later, as the trace of an event follows
them, but for all events of a batch together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.errors import NotFoundError, ReconciliationError, StoreError, UserError
from eventbridge.model import rowset
from eventbridge.model.batch import Batch
from eventbridge.model.pending import DeferredMatch, PendingDeliveries
from eventbridge.model.redelivery import Redriven
from eventbridge.model.why import EventResult
from eventbridge.pipeline.settle.settlement import settlements
from eventbridge.runtime.batch_files import read_dead_letters
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.visibility import visibility_of
from eventbridge.store.columns import NO_CODE, codes_of, numbers_of
from eventbridge.store.parquet import read_table
from eventbridge.store.schemas import DELIVERY

#: The statuses of an event that has landed, from the one that needs the least attention. An event is `unknown` if the
#: outcomes of its batch are past their retention or cannot be read.
STATUSES: Final = ("unmatched", "delivered", "pending", "dead_lettered", "unknown")
_UNMATCHED, _DELIVERED, _PENDING, _DEAD_LETTERED, _UNKNOWN = range(len(STATUSES))
#: The status that a delivery gives its event, by the state of the delivery; in any other state it is pending. A shadow
#: is sent once, and its failure concerns nobody but the shadow.
_OF_STATE: Final = {"delivered": _DELIVERED, "shadow": _DELIVERED, "dead_lettered": _DEAD_LETTERED}

#: The maximum number of deliveries whose statuses are read for a list that is not filtered by status or rule.
MAX_LISTED_DELIVERIES: Final = 100_000
_COLUMNS: Final = ["delivery_id", "rule", "event_file", "event_row"]
Codes = npt.NDArray[np.int64]


def check_status(status: str | None) -> None:
    """Raise UserError if `status` is not one of STATUSES."""
    if status is not None and status not in STATUSES:
        raise UserError(f"unknown status {status!r}. Statuses: {', '.join(STATUSES)}")


def status_of_event(message: EventResult) -> str:
    """Return the status of an event from its trace, as the list of events has it: one of STATUSES.

    Deliveries of replays with ids of their own do not count. A duplicate or malformed event has that status.
    """
    if message.status != "valid":
        return message.status or "unknown"
    if not message.landings:
        return "unknown"
    batches = {each.batch_id for each in message.landings}
    is_deferred = any(
        each.what == "deferred" and each.outcome != "closed" and each.batch_id in batches for each in message.steps
    )
    is_open = is_deferred or any(each.state != "committed" for each in message.landings)
    codes = [_OF_STATE.get(each.state, _PENDING) for each in message.deliveries if not each.replay_id]
    return STATUSES[max([*codes, _PENDING if is_open else _UNMATCHED])]


def redriven_by(runtime: Runtime, batch: Batch, columns: list[str]) -> Iterator[tuple[Redriven, pa.Table]]:
    """Yield the dead letters that a redrive's batch took, by file; they are in progress until it is settled.

    Raises ReconciliationError for a file that is missing or damaged.
    """
    if batch.kind == "redrive":
        for taken in runtime.ledger.redrives.list_taken_by(batch.batch_id):
            yield taken, read_dead_letters(runtime.store, taken.file, taken.rows, columns)


@dataclass(frozen=True)
class EventStatus:
    """The status of an event, the number of rules that it has deliveries of, and the replays that took it."""

    status: str
    rules: int
    replays: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Deliveries:
    """The deliveries of a batch's events: file, row, rule and status of each, as codes."""

    files: list[str]
    rules: list[str]
    file: Codes
    row: Codes
    rule: Codes
    status: Codes
    deferred: Mapping[str, list[tuple[str, Codes]]]  # by file: rules that have not been routed yet for some rows
    is_settled: bool

    def in_file(self, path: str, rows: int) -> npt.NDArray[np.bool_]:
        """Return which deliveries are of the first `rows` rows of a file."""
        number = self.files.index(path) if path in self.files else NO_CODE
        chosen: npt.NDArray[np.bool_] = (self.file == number) & (self.row < rows)
        return chosen


class _Generation(NamedTuple):
    """A batch with deliveries of the events, and its files by kind."""

    batch: Batch
    paths: dict[str, list[str]]


class EventStatuses:
    """Reads the statuses of events, all of a batch together, and keeps the deliveries of the last batches.

    Rules that the caller may not see do not count.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._visibility = visibility_of(runtime)
        self._known: dict[str, _Deliveries | None] = {}
        self._kept = 0
        replays = runtime.ledger.replays.all()
        self._replays = [each for each in replays if self._visibility.all_rules(each.selection.get("rules", ()))]
        self.unreadable: list[str] = []

    def count(self, batch_id: str) -> int:
        """Return the number of a batch's deliveries that are still to be read."""
        if batch_id in self._known:
            return 0
        return sum(each.rows for each in self._runtime.ledger.files.list_for_batch(batch_id, "delivery"))

    def codes(self, batch_id: str, path: str, rows: int, rule: str | None = None) -> Codes:
        """Return the status of each of the first `rows` rows of an archive file, as an index of STATUSES.

        If `rule` is given, only deliveries of this rule count.
        """
        found = self._batch_deliveries(batch_id)
        if found is None:
            return np.full(rows, _UNKNOWN, np.int64)
        codes = np.full(rows, _UNMATCHED if found.is_settled else _PENDING, np.int64)
        for name, deferred in found.deferred.get(path, ()):
            if rule in (None, name):
                codes[deferred[deferred < rows]] = _PENDING
        chosen = found.in_file(path, rows)
        if rule is not None:
            chosen = chosen & (found.rule == (found.rules.index(rule) if rule in found.rules else -1))
        np.maximum.at(codes, found.row[chosen], found.status[chosen])
        return codes

    def status_of_rows(self, batch_id: str, path: str, rows: list[int]) -> list[EventStatus]:
        """Return the statuses of some rows of an archive file, with their rules and replays."""
        found, most = self._batch_deliveries(batch_id), max(rows) + 1
        codes = self.codes(batch_id, path, most)
        counts = np.zeros(most, np.int64)
        if found is not None:
            chosen = found.in_file(path, most)
            pairs = np.unique(np.stack((found.row[chosen], found.rule[chosen])), axis=1)
            np.add.at(counts, pairs[0], 1)
        taken = self._replays_of(batch_id, path)
        return [
            EventStatus(STATUSES[codes[row]], int(counts[row]), tuple(name for name, of in taken if _holds(of, row)))
            for row in rows
        ]

    def _replays_of(self, batch_id: str, path: str) -> list[tuple[str, str]]:
        """Return the replays that took events of a file, each with the rows."""
        if not self._replays:
            return []
        batch = self._runtime.ledger.batches.get(batch_id)
        found = []
        for replay in self._replays:
            if replay.bus == batch.bus and replay.since <= batch.planned_at < replay.until:
                searched = self._runtime.ledger.replays.searched_in(replay.replay_id, path)
                found += [(replay.replay_id, each.rows) for each in searched if each.batch_id is not None]
        return found

    def _batch_deliveries(self, batch_id: str) -> _Deliveries | None:
        if batch_id not in self._known:
            try:
                found = self._read(batch_id)
            except (StoreError, ReconciliationError) as error:
                self.unreadable.append(f"batch {batch_id}: {error}")
                found = None
            self._kept += 0 if found is None else len(found.row)
            if self._kept > MAX_LISTED_DELIVERIES:
                self._known.clear()
                self._kept = 0 if found is None else len(found.row)
            self._known[batch_id] = found
        return self._known[batch_id]

    def _read(self, batch_id: str) -> _Deliveries | None:
        generations = self._generations(batch_id)
        first = generations[0] if generations else None
        if first is None or first.batch.batch_id != batch_id:
            return None  # past its retention
        table = self._deliveries(generations)
        (file, files), (rule, rules) = codes_of(table["event_file"]), codes_of(table["rule"])
        ids = table["delivery_id"].combine_chunks()
        status = np.full(table.num_rows, _PENDING, np.int64)
        for each in generations:  # oldest first: the last outcome counts, but `delivered` is final
            if "settlement" not in each.paths:
                for _, taken in redriven_by(self._runtime, each.batch, ["delivery_id"]):
                    _set_open(status, numbers_of(pc.index_in(taken["delivery_id"], value_set=ids), -1), _PENDING)
            for _, settled in settlements(self._runtime, each.batch.batch_id, ["delivery_id", "status"]):
                _apply(status, ids, settled)
        visible = np.array([self._visibility.rule(name) for name in [*rules, ""]], np.bool_)
        own = np.array([name in first.paths["buffer"] for name in [*files, ""]], np.bool_)
        counted = visible[rule] & own[file]  # a redrive's delivery has the id of the first, and its file is another
        return _Deliveries(
            files=files,
            rules=rules,
            file=file[counted],
            row=numbers_of(table["event_row"])[counted],
            rule=rule[counted],
            status=status[counted],
            deferred=self._deferred(batch_id),
            is_settled="settlement" in first.paths,
        )

    def _deliveries(self, generations: list[_Generation]) -> pa.Table:
        tables = [pa.schema([DELIVERY.field(name) for name in _COLUMNS]).empty_table()]
        for each in generations:
            if each.batch.has_route_stage:
                tables += [read_table(self._runtime.store, path, _COLUMNS) for path in each.paths["delivery"]]
        return pa.concat_tables(tables)

    def _deferred(self, batch_id: str) -> dict[str, list[tuple[str, Codes]]]:
        found: dict[str, list[tuple[str, Codes]]] = {}
        for each in self._runtime.ledger.deferred_matches.list_for_batch(batch_id):
            if each.state != "closed" and self._visibility.rule(each.rule):
                for path, rows in each.files:
                    numbers = np.array(list(rowset.decode(rows)), np.int64)
                    found.setdefault(path, []).append((each.rule, numbers))
        return found

    def _generations(self, batch_id: str) -> list[_Generation]:
        """Return a batch and all batches that took up its deliveries, directly or indirectly, oldest first.

        Batches whose outcomes are past their retention are left out.
        """
        found: dict[str, _Generation] = {}
        newest = {batch_id}
        seen: set[str] = set()
        while newest:
            seen |= newest
            some = [each for name in newest if (each := self._generation(name)) is not None]
            found |= {each.batch.batch_id: each for each in some}
            newest = {later for each in some for later in self._later(each)} - seen
        return [found[name] for name in sorted(found)]  # batch ids sort by planning time

    def _generation(self, batch_id: str) -> _Generation | None:
        try:
            batch = self._runtime.ledger.batches.get(batch_id)
        except NotFoundError:  # retention removed it
            return None
        paths: dict[str, list[str]] = defaultdict(list)
        for kind, path in self._runtime.ledger.files.paths(batch_id):
            paths[kind].append(path)
        return _Generation(batch, paths) if batch.kept == "all" else None

    def _later(self, generation: _Generation) -> Iterator[str]:
        ledger, batch_id = self._runtime.ledger, generation.batch.batch_id
        left: list[PendingDeliveries | DeferredMatch] = [*ledger.pending.list_for_batch(batch_id)]
        left += ledger.deferred_matches.list_for_batch(batch_id)
        for row in left:
            yield from (each for each in (row.taken_by, row.closed_by) if each is not None)
        for path in generation.paths["dead_letter"]:
            yield from (each.batch_id for each in ledger.redrives.list_taken_from(path))
        for replay in self._replays:
            if not replay.new_ids and replay.bus == generation.batch.bus:
                for path in generation.paths["buffer"]:
                    searched = ledger.replays.searched_in(replay.replay_id, path)
                    yield from (each.batch_id for each in searched if each.batch_id is not None)


def _apply(status: Codes, ids: pa.Array, settled: pa.Table) -> None:
    """Set the statuses of settled deliveries."""
    at = numbers_of(pc.index_in(settled["delivery_id"], value_set=ids), -1)
    codes, names = codes_of(settled["status"])
    _set_open(status, at, np.array([_OF_STATE.get(name, _PENDING) for name in [*names, ""]], np.int64)[codes])


def _set_open(status: Codes, at: Codes, new: Codes | int) -> None:
    """Set statuses where `at` is not negative; a delivery that was made stays delivered."""
    is_set = (at >= 0) & (status[at] != _DELIVERED)
    status[at[is_set]] = np.broadcast_to(new, at.shape)[is_set]


def _holds(rows: str, wanted: int) -> bool:
    return any(wanted in run for run in rowset.runs(rows))
