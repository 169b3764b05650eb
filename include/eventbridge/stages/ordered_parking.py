"""How deliveries of ordered targets are parked: by shard, with their places, held behind their key or at a failure.

Called by schedule_retries. What a normal batch could not send is parked due: only a retry batch, which has its shard
for itself, may say that a delivery waits behind its key until something of the shard gets its verdict.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from eventbridge import rowset
from eventbridge.delivery import NOT_BEFORE
from eventbridge.identity import delivery_id_text
from eventbridge.ledger.records import Batch, Parked
from eventbridge.order import BEHIND_ITS_KEY, BLOCKED, Place, Span, held_at, is_marked, shard_of, spans_of
from eventbridge.rule import RuleSet
from eventbridge.stages.letter_copies import read_deliveries
from eventbridge.stages.open_deliveries import PLACE_COLUMNS, place_of
from eventbridge.stages.workplace import Workplace

#: Reasons for which a delivery would be given up; where none may be, its rule is held at it.
ENDS = frozenset(
    {"MaximumRetryAttempts", "MaximumEventAge", "NonRetryable", "TransformFailed", "TargetGone", "RouteFailed"}
)


class Ordered(NamedTuple):
    """What the parked row of an ordered delivery has that others have not; `reason` as it is shown."""

    shard: int
    reason: str
    held: str

    @property
    def lane(self) -> str:
        """The lane's name: lanes do not apply to ordered targets, their rows go by shard."""
        return f"order.{self.shard}"


class OrderedParking:
    """Says of the verdicts of one batch which are of ordered targets, and how these are parked."""

    def __init__(self, work: Workplace, batch: Batch) -> None:
        self._work = work
        self._batch = batch
        self._rule_set = work.rules_of(batch)
        self._places: dict[tuple[str, int], tuple[str, Place]] = {}
        self._notes: dict[tuple[str, int], str] = {}
        for taken in work.ledger.parked_taken_by(batch.batch_id):
            if is_marked(taken.held):
                self._notes |= {(file, row): taken.held for file, rows in taken.files for row in rowset.decode(rows)}

    def read(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Read keys and places of the deliveries that rows of a settlement name, if their targets may be ordered."""
        files: dict[str, list[int]] = defaultdict(list)
        for row in rows:
            if may_be_ordered(self._rule_set, row["rule"], row["target"]):
                files[row["file"]].append(row["row"])
        for file, numbers in files.items():
            wanted = sorted(set(numbers))
            table = read_deliveries(self._work.store, file, rowset.encode(wanted), [*PLACE_COLUMNS, "order_key"])
            for number, row in zip(wanted, table.to_pylist(), strict=True):
                if row["order_key"] is not None:
                    self._places[file, number] = row["order_key"], place_of(row)

    def of(self, row: Mapping[str, Any]) -> Ordered | None:
        """Return how a row of a settlement is parked, None if its target is not ordered."""
        at = (row["file"], row["row"])
        if at not in self._places:
            return None
        key, _ = self._places[at]
        return Ordered(shard_of(key), _reason(row), row["held"] or self._held(row, at))

    def spans(self, rows: Iterable[Mapping[str, Any]]) -> tuple[Span, ...]:
        """Return where the deliveries of some rows lie in their queues, () if they are not ordered."""
        found = (self._places.get((row["file"], row["row"])) for row in rows)
        return spans_of(place for each in found if each is not None for _, place in (each,))

    def _held(self, row: Mapping[str, Any], at: tuple[str, int]) -> str:
        if row["verdict"] == "Unknown" or row["reason"] in (BLOCKED, NOT_BEFORE):
            if at in self._notes:
                return self._notes[at]  # what a person said is not forgotten with the push that was to do it
            retried = self._batch.kind == "retry" and not self._batch.routes
            return BEHIND_ITS_KEY if retried and row["reason"] == BLOCKED else ""
        if row["reason"] in ENDS and gives_nothing_up(self._rule_set, row["rule"], row["target"]):
            return held_at(delivery_id_text(row["delivery_id"]))
        return ""


def gives_nothing_up(rules: RuleSet, rule: str, target: str) -> bool:
    """Return whether a target has `errors_tolerance: none`; False for one that no rule names."""
    found = rules.rules.get(rule)
    return found is not None and target in found.destinations and found.destinations[target].errors_tolerance == "none"


def may_be_ordered(rules: RuleSet, rule: str, target: str) -> bool:
    """Return whether a target is ordered, or not named (any more), so that only its deliveries tell."""
    found = rules.rules.get(rule)
    return found is None or target not in found.destinations or found.destinations[target].ordered


def release_after_progress(work: Workplace, batch: Batch, parked: Sequence[Parked]) -> None:
    """Make due what waits behind its keys in the shards in which a retry batch gave something its verdict.

    To be called before the batch commits, any number of times: until then nobody else takes rows of these shards.
    """
    if batch.routes:
        return
    taken: Counter[tuple[str, str, int]] = Counter()
    for row in work.ledger.parked_taken_by(batch.batch_id):
        if row.order_shard is not None:
            taken[row.rule, row.target, row.order_shard] += row.count
    for row in parked:
        if row.order_shard is not None:
            taken[row.rule, row.target, row.order_shard] -= row.count
    for (rule, target, shard), settled in taken.items():
        if settled > 0:
            work.ledger.release_shard(rule, target, shard)


def _reason(row: Mapping[str, Any]) -> str:
    said = row["reason"] in ENDS or row["reason"] == BLOCKED
    return str(row["reason"] if said and row["verdict"] == "RetryAt" else row["verdict"])
