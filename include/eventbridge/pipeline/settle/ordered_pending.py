"""How deliveries of ordered targets are pending: by shard, with their places, on hold behind their key or at a failure.

Called by schedule_retries. Deliveries that a normal batch could not send are pending and due: only a retry batch, which
has the shard to itself, may put a delivery on hold behind its key until another of the shard gets its verdict.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from eventbridge.delivery.queue_copies import read_deliveries
from eventbridge.event.ids import delivery_id_text
from eventbridge.model import row_vectors
from eventbridge.model.batch import Batch
from eventbridge.model.outcome import NOT_BEFORE
from eventbridge.model.partition import Partition
from eventbridge.model.pending import PendingDeliveries
from eventbridge.model.row_vectors import Rows
from eventbridge.pipeline.settle.waiting import Flags, WaitingRows
from eventbridge.policy.ordering import BEHIND_ITS_KEY, BLOCKED, PLACE_COLUMNS, is_marked, on_hold_at, shard_of
from eventbridge.rules import RuleSet
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.columns import NO_CODE, codes_of, column_of, numbers_of

#: Reasons for which a delivery would be dead-lettered; where none may be, its rule is put on hold at it.
ENDS = frozenset(
    {"maximum_retry_attempts", "maximum_event_age", "non_retryable", "transform_failed", "target_gone", "route_failed"}
)


class OrderedPending:
    """Finds the deliveries of ordered targets in one batch, and decides how they are pending."""

    def __init__(self, runtime: Runtime, batch: Batch) -> None:
        self._runtime = runtime
        self._batch = batch
        self._rule_set = runtime.rules_of(batch)
        self._notes: dict[str, list[tuple[str, Rows]]] = defaultdict(list)
        for taken in runtime.ledger.pending_taken_by(batch.batch_id):
            for file, rows in taken.files if is_marked(taken.held) else ():
                self._notes[file].append((taken.held, row_vectors.decode(rows)))

    def enter(self, waiting: WaitingRows) -> None:
        """Set shard, place, reason and hold in rows of ordered targets."""
        found = np.flatnonzero(waiting.of_targets(partial(may_be_ordered, self._rule_set)))
        for file, at in waiting.by_file(found):
            self._place(waiting, file, at)
        ordered = waiting.shard != NO_CODE
        if not ordered.any():
            return
        shown = waiting.has(waiting.verdict, "retry_scheduled") & waiting.has(waiting.reason, *ENDS, BLOCKED) & ordered
        waiting.kept_reason[ordered] = waiting.verdict[ordered]
        waiting.kept_reason[shown] = waiting.reason[shown]
        self._hold(waiting, ordered & (waiting.held == NO_CODE))

    def _place(self, waiting: WaitingRows, file: str, at: Rows) -> None:
        rows = waiting.row[at]
        wanted = np.unique(rows)
        table = read_deliveries(self._runtime.store, file, row_vectors.encode(wanted), [*PLACE_COLUMNS, "order_key"])
        table = table.take(column_of(np.searchsorted(wanted, rows), pa.int64()))
        key_of, keys = codes_of(table["order_key"])
        waiting.shard[at] = np.array([*map(shard_of, keys), NO_CODE])[key_of]
        waiting.offset[at] = numbers_of(table["offset"])
        names = table.select(PLACE_COLUMNS[:-1]).to_pydict().values()
        waiting.partition[at] = [waiting.partition_code(Partition(*each)) for each in zip(*names, strict=True)]

    def _hold(self, waiting: WaitingRows, free: Flags) -> None:
        """Set why rows are on hold that their settlement does not hold."""
        blocked = waiting.has(waiting.reason, BLOCKED)
        untried = waiting.has(waiting.verdict, "unknown") | blocked | waiting.has(waiting.reason, NOT_BEFORE)
        if self._batch.kind == "retry" and not self._batch.routes:
            waiting.held[free & blocked] = waiting.code(BEHIND_ITS_KEY)
        for file, at in waiting.by_file(np.flatnonzero(free & untried)) if self._notes else ():
            for note, rows in self._notes[file]:  # an operator's decision survives the push that was to carry it out
                waiting.held[at[np.isin(waiting.row[at], rows)]] = waiting.code(note)
        ended = free & ~untried & waiting.has(waiting.reason, *ENDS)
        if ended.any():
            ended &= waiting.of_targets(partial(dead_letters_nothing, self._rule_set))
        for number in np.flatnonzero(ended).tolist():
            waiting.held[number] = waiting.code(on_hold_at(delivery_id_text(waiting.ids[number].tobytes())))


def dead_letters_nothing(rules: RuleSet, rule: str, target: str) -> bool:
    """Return whether a target has `errors_tolerance: none`; False if no rule names it."""
    found = rules.rules.get(rule)
    return found is not None and target in found.destinations and found.destinations[target].errors_tolerance == "none"


def may_be_ordered(rules: RuleSet, rule: str, target: str) -> bool:
    """Return whether a target is ordered, or is not named (any more), so that only its deliveries show it."""
    found = rules.rules.get(rule)
    return found is None or target not in found.destinations or found.destinations[target].ordered


def release_after_progress(runtime: Runtime, batch: Batch, pending: Sequence[PendingDeliveries]) -> None:
    """Make due the deliveries behind their keys, in shards where a retry batch settled a delivery.

    Call it before the batch commits, any number of times: until then no other batch takes rows of these shards.
    """
    if batch.routes:
        return
    taken: Counter[tuple[str, str, int]] = Counter()
    for row in runtime.ledger.pending_taken_by(batch.batch_id):
        if row.order_shard is not None:
            taken[row.rule, row.target, row.order_shard] += row.count
    for row in pending:
        if row.order_shard is not None:
            taken[row.rule, row.target, row.order_shard] -= row.count
    for (rule, target, shard), settled in taken.items():
        if settled > 0:
            runtime.ledger.release_shard(rule, target, shard)
