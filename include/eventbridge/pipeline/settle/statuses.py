"""Runs the first half of the write_dead_letters stage: settles a batch, that is, gives each delivery one final
status."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.delivery.queue_copies import QUEUE_EXHAUSTED, is_dead_letter
from eventbridge.delivery.segments import Responses, read_responses, segments
from eventbridge.model import row_vectors
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import PUSH_LOST, Chunk
from eventbridge.model.file_detail import RoutedShare
from eventbridge.model.outcome import SHADOW_FAILED, SHADOW_NOT_SENT, STATUS_RANK
from eventbridge.model.pending import EXPECTATION_FAILED, RULE_PAUSED, TARGET_DISABLED, TARGET_PAUSED
from eventbridge.model.row_vectors import Rows
from eventbridge.pipeline.settle.pending import dead_letters_nothing
from eventbridge.pipeline.settle.settlement import ChunkRows, batch_deliveries, publish_settlement, settlement_key
from eventbridge.policy.delivery_windows import next_opening, windows_of
from eventbridge.runtime.claims import begin_settlement
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import columns, schemas

#: The lane of every delivery that becomes pending.
_SLOW = "slow"

#: The time that deliveries wait after their push failed with an error. A push with an undefined connection, for
#: example, would fail again immediately.
_PAUSE = timedelta(seconds=30)

_DELIVERED, _DEAD, _RETRY, _UNKNOWN = map(
    STATUS_RANK.index, ("delivered", "dead_lettered", "retry_scheduled", "unknown")
)

_DISABLED, _COPY_ON_HOLD = 0, 1  # indices in `Judge._hold_reasons`

#: The columns of a delivery row that `Judge.settle` needs.
MATCHED_COLUMNS = ["delivery_id", "rule", "target", "failure", "published_at", "arrived_at", "not_before"]

_SETTLEMENT = columns.with_codes(schemas.SETTLEMENT)
_Flags = npt.NDArray[np.bool_]


def settle(runtime: Runtime, batch: Batch) -> Batch:
    """Freeze the statuses of a routed batch and return it in the `settling` state; later calls change nothing.

    The function waits until no push of the batch is at work, and then invalidates every claim, so that no segment can
    be recorded while the statuses are read. If two processes settle at the same time, the first to create the file
    wins, and the statuses of the other are discarded.
    """
    if batch.state == "routed":
        begin_settlement(runtime, batch.batch_id)
        batch = runtime.ledger.batches.get(batch.batch_id)
    if batch.state == "settling" and not runtime.ledger.files.list_for_batch(batch.batch_id, "settlement"):
        publish_settlement(runtime, batch, 0, read_settled_tables(runtime, batch), settlement_key(0))
    return batch


def read_settled_tables(runtime: Runtime, batch: Batch, without: Collection[str] = ()) -> Iterator[pa.Table]:
    """Yield the settled deliveries of a batch from its segments, except the segments with keys in `without`.

    There is one table for each delivery file, with the columns of the SETTLEMENT schema and dictionary-coded strings.
    """
    files = (file for file in segments(runtime, batch.batch_id) if file.key not in without)
    judge = Judge(runtime, batch, read_responses(runtime.store, (file.path for file in files if file.path is not None)))
    for file, rows, table in batch_deliveries(runtime, batch, MATCHED_COLUMNS):
        yield judge.settle(file, rows, table)


class Judge:
    """Gives the deliveries of a batch their statuses, from the responses or else from their chunks, targets and
    rules."""

    def __init__(self, runtime: Runtime, batch: Batch, responses: Responses | None = None) -> None:
        """Without `responses`, every delivery that could be sent is unknown."""
        chunks = runtime.ledger.chunks.list_for_batch(batch.batch_id)
        self._responses = responses or read_responses(runtime.store, ())
        self._chunk_rows = ChunkRows(chunks)
        self._rules = runtime.rules_of(batch)
        self._windows = windows_of(self._rules)
        # Pending or redriven deliveries were routed to a target that was not a shadow at that time.
        self._shadows = self._rules.shadows() if batch.has_route_stage else frozenset()
        statuses = runtime.ledger.targets.statuses()
        self._disabled = {target for target, status in statuses.items() if status.state == "disabled"}
        self._failures = _failure_reasons(runtime, batch)
        self._now = columns.time_code(runtime.clock())
        # There is one more value than chunks, for rows without a chunk, whose index is NO_CODE.
        self._chunk_ids = np.array([*(chunk.chunk_id for chunk in chunks), -1])
        self._untried_due = np.array([*(self._now + _pause(chunk) for chunk in chunks), self._now])
        self._overrides = runtime.ledger.overrides.get_effective()
        reasons = {
            EXPECTATION_FAILED,
            RULE_PAUSED,
            TARGET_PAUSED,
            *(chunk.hold_reason for chunk in chunks if chunk.hold_reason),
        }
        self._hold_reasons = [TARGET_DISABLED, QUEUE_EXHAUSTED, *sorted(reasons)]
        codes = (
            self._hold_reasons.index(chunk.hold_reason) if chunk.hold_reason else columns.NO_CODE for chunk in chunks
        )
        self._on_hold_of_chunk = np.array([*codes, columns.NO_CODE])

    def settle(self, file: str, rows: Rows, table: pa.Table) -> pa.Table:
        """Settle rows of a delivery file; `table` has their MATCHED_COLUMNS.

        A delivery without an outcome is unknown, because sending it again is safe and forgetting it is not. It is due
        now, or after a pause if its push failed with an error. No delivery is due before it may be sent, or while its
        target's window is closed. A delivery without a payload becomes a dead letter or, if its target allows no dead
        letters, a retry that puts its rule on hold.
        """
        responses = self._responses.rows_of(columns.ids_of(table["delivery_id"]))
        chunk_of, attempts = self._chunk_rows.chunk_indexes(file, rows)
        status, _ = columns.codes_of(responses["status"])  # the codes are ranks, because the dictionary is STATUS_RANK
        found = status != columns.NO_CODE
        status[~found] = _UNKNOWN
        attempts = np.where(found, columns.numbers_of(responses["attempts"]), attempts)
        due_at = np.full(len(rows), columns.NO_TIME)
        hold_reason = np.full(len(rows), columns.NO_CODE)
        reason, detail = columns.coded(responses["reason"]), columns.coded(responses["detail"])

        failed = columns.valid_of(table["failure"]) & ~found
        waits = (status >= _RETRY) & ~failed
        if waits.any():
            due_at[waits] = self._due_at(table, responses, chunk_of)[waits]
            hold_reason[waits] = self._hold_reasons_of(table, chunk_of)[waits]
        if failed.any():
            kept = failed & _target_flags(table, self._dead_letters_nothing)
            status[failed] = _DEAD
            status[kept] = _RETRY
            due_at[kept] = self._now
            reason = _replace(reason, failed, self._reasons(file, rows))
            detail = _replace(detail, failed, columns.coded(table["failure"]))
        if self._shadows:
            over = (status != _DELIVERED) & _target_flags(table, self._shadows.__contains__)
            status, reason = self._settle_shadows(status, reason, over, failed)
            due_at[over], hold_reason[over] = columns.NO_TIME, columns.NO_CODE
        if is_dead_letter(file):  # a dead-lettered copy goes on hold, and starts over once released
            dead = status == _DEAD
            status[dead], attempts[dead] = _RETRY, 0
            due_at[dead], hold_reason[dead] = self._now, _COPY_ON_HOLD
        return pa.Table.from_arrays(
            [
                *(table["delivery_id"], columns.coded(table["rule"]), columns.coded(table["target"])),
                columns.column_of(self._chunk_ids[chunk_of], pa.int32(), chunk_of == columns.NO_CODE),
                columns.same(file, len(rows)),
                columns.column_of(rows, pa.int32()),
                columns.texts(status, list(STATUS_RANK)),
                columns.column_of(attempts, pa.int32()),
                columns.times(due_at),
                columns.texts(np.where(status >= _RETRY, 0, columns.NO_CODE), [_SLOW]),
                columns.texts(hold_reason, self._hold_reasons),
                reason,
                detail,
                *(table[name] for name in ("published_at", "arrived_at", "not_before")),
                responses["responded_at"],
            ],
            schema=_SETTLEMENT,
        )

    def _settle_shadows(
        self, status: Rows, reason: pa.DictionaryArray, over: _Flags, failed: _Flags
    ) -> tuple[Rows, pa.DictionaryArray]:
        """Return the statuses and reasons with the rows `over`, which belong to shadows, settled as delivered."""
        reasons = columns.texts(np.where(failed, 0, 1), [SHADOW_FAILED, SHADOW_NOT_SENT])
        return np.where(over, _DELIVERED, status), _replace(reason, over, reasons)

    def _due_at(self, table: pa.Table, responses: pa.Table, chunk_of: Rows) -> Rows:
        due_at = columns.times_of(responses["due_at"])
        due_at = np.where(due_at == columns.NO_TIME, self._untried_due[chunk_of], due_at)
        due_at = np.maximum(due_at, columns.times_of(table["not_before"]))
        if self._windows:
            for target, its_rows in _rows_by_target(table).items():
                if window := self._windows.get(target):
                    at, back = np.unique(due_at[its_rows], return_inverse=True)
                    opens = [columns.time_code(next_opening(window, columns.time_at(each))) for each in at.tolist()]
                    due_at[its_rows] = np.array(opens)[back]
        return due_at

    def _hold_reasons_of(self, table: pa.Table, chunk_of: Rows) -> Rows:
        hold_reason = self._on_hold_of_chunk[chunk_of]
        for target, its_rows in _rows_by_target(table).items() if self._overrides.holds else ():
            if reason := self._overrides.hold_reason(*target):
                hold_reason[its_rows] = self._hold_reasons.index(reason)
        if self._disabled:
            hold_reason[_target_flags(table, self._disabled.__contains__)] = _DISABLED
        return hold_reason

    def _dead_letters_nothing(self, target: tuple[str, str]) -> bool:
        return dead_letters_nothing(self._rules, *target)

    def _reasons(self, file: str, rows: Rows) -> pa.DictionaryArray:
        """Return why each failed row failed."""
        reasons = np.zeros(len(rows), np.int64)
        names = ["transform_failed"]
        for reason, its_rows in self._failures.get(file, {}).items():
            reasons[np.isin(rows, row_vectors.decode(its_rows))] = len(names)
            names.append(reason)
        return columns.texts(reasons, names)


def _pause(chunk: Chunk) -> int:
    failed = chunk.state == "error" and chunk.error != PUSH_LOST
    return _PAUSE // timedelta(microseconds=1) if failed else 0


def _failure_reasons(runtime: Runtime, batch: Batch) -> Mapping[str, Mapping[str, str]]:
    """Return, by path and reason, the row sets of deliveries that failed for a reason other than `transform_failed`."""
    return {
        file.path: file.detail.failure_reasons
        for file in runtime.ledger.files.list_for_batch(batch.batch_id, "delivery")
        if file.path is not None and isinstance(file.detail, RoutedShare)
    }


def _rows_by_target(table: pa.Table) -> dict[tuple[str, str], Rows]:
    rule_of, rules = columns.codes_of(table["rule"])
    target_of, targets = columns.codes_of(table["target"])
    pairs = rule_of * len(targets) + target_of
    order = np.argsort(pairs, kind="stable")
    found, starts = np.unique(pairs[order], return_index=True)
    names = ((rules[pair // len(targets)], targets[pair % len(targets)]) for pair in found.tolist())
    return dict(zip(names, np.split(order, starts[1:]), strict=False))  # no rows: one part, no name


def _target_flags(table: pa.Table, chosen: Callable[[tuple[str, str]], bool]) -> _Flags:
    """Return which rows have targets for which `chosen` is true."""
    flags = np.zeros(table.num_rows, bool)
    for target, rows in _rows_by_target(table).items():
        flags[rows] = chosen(target)
    return flags


def _replace(column: pa.DictionaryArray, where: _Flags, by: pa.DictionaryArray) -> pa.DictionaryArray:
    plain = pc.if_else(columns.flag_column(where), by.cast(pa.string()), column.cast(pa.string()))
    return plain.dictionary_encode()
