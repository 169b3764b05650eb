"""Chooses the pending rows of a retry batch: one chunk for each target with due rows, and more for targets with
capacity.

An ordered target gets the first rows of each shard that is not in use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from eventbridge.model.pending import PendingDeliveries
from eventbridge.model.rule_state import OperatorOverrides, TargetStatus
from eventbridge.policy.batch_size import fair_shares, round_robin
from eventbridge.policy.breaker import GOOD_PROBES, admits
from eventbridge.policy.chunking import PoolSlots, chunks_for
from eventbridge.policy.ordering import BEHIND_ITS_KEY, is_marked, waits_for_order
from eventbridge.policy.rate_limit import second_of, tokens_within
from eventbridge.rules import RuleSet, Target
from eventbridge.rules.types import SMALL_CHUNK, ChunkSize
from eventbridge.runtime.runtime import Runtime

#: The maximum number of ledger rows to read for one target; each row holds up to a chunk of deliveries.
_MAX_ROWS = 5_000

PendingRows = list[PendingDeliveries]


@dataclass(frozen=True)
class _DueTarget:
    """A target with due deliveries, its first chunk, and how many more chunks it could take (`wants`)."""

    rule: str
    target: str
    first: PendingRows
    size: ChunkSize
    most: int  # the maximum number of its deliveries in the batch
    wants: int = 0


@dataclass(frozen=True)
class RetryChunks:
    """Chooses the chunks of one retry batch from the deliveries that are due when it is planned.

    `slots` are the slots of the retry pool; if they are unknown (None), a batch may have the maximum number of chunks.
    """

    runtime: Runtime
    rules: RuleSet
    runner: str | None
    slots: PoolSlots | None

    def take(self) -> list[PendingRows]:
        """Return the rows of each chunk: first one chunk for each target, then the additional chunks.

        If more targets have due rows than a batch has chunks, they are served round robin. The capacity that remains
        after the first chunks is shared fairly among the targets that are ok, are not ordered, have more than one chunk
        due, and are in no other batch.
        """
        settings = self.runtime.settings
        due = []
        for rule, target in self._due_targets():
            if found := self._first(rule, target):
                due.append(found)
            if len(due) == settings.batch_max_chunks:
                break
        chunks = [each.first for each in due]
        room = chunks_for(self.slots, settings.batch_max_chunks) - len(chunks)
        left = settings.batch_max_deliveries - sum(map(_count, chunks))
        shares = fair_shares(max(0, room), [each.wants for each in due])
        for each, share in zip(due, shares, strict=True):
            more = self._more(each, share, left) if share and left > 0 else []
            left -= sum(map(_count, more))
            chunks += more
        return chunks

    @cached_property
    def _now(self) -> datetime:
        return self.runtime.clock()

    @cached_property
    def _busy(self) -> set[tuple[str, str]]:
        return self.runtime.ledger.pending.list_taken_targets()

    @cached_property
    def _statuses(self) -> dict[tuple[str, str], TargetStatus]:
        return dict(self.runtime.ledger.targets.statuses())

    @cached_property
    def _overrides(self) -> OperatorOverrides:
        return self.runtime.ledger.overrides.get_effective()

    def _due_targets(self) -> list[tuple[str, str]]:
        """Return the targets with due deliveries, longest waiting first, or in round-robin order if there are more
        targets than a batch has chunks."""
        due = {
            (each.rule, each.target): each.first_due_at
            for each in self.runtime.ledger.due.targets(self._now, self.runner)
        }
        most = self.runtime.settings.batch_max_chunks
        return (
            list(due)
            if len(due) <= most
            else round_robin(due, self.runtime.ledger.pending.last_taken(len(due) // most + 1))
        )

    def _first(self, rule: str, target: str) -> _DueTarget | None:
        """Return the first chunk of a target; None if none of its rows may be tried now."""
        status = self._statuses.get((rule, target))
        ordered = is_ordered(self.rules, rule, target)
        admitted = "all" if ordered else admits(status, self._now)  # an ordered target has no breaker
        busy = (rule, target) in self._busy
        if admitted in ("probes", "apart") and busy:
            return None  # a degraded target gets one chunk at a time
        probes = admitted == "probes"  # probes need few deliveries; unsent ones become pending again
        spec = self._spec(rule, target)
        size = self.runtime.chunk_sizes.size_of(spec) if admitted == "all" else self.runtime.chunk_sizes.small
        rows = self._rows(rule, target, smallest=probes)
        read = len(rows)
        if ordered and (status is None or status.state != "disabled"):
            rows = [row for row in rows if row.order_shard is None]
            rows += due_ordered_rows(self.runtime, rule, target, self._now, self.runner)
        most = self._most(rule, spec, status)
        dead_letters = any(row.hold_reason for row in rows)
        if probes and not dead_letters:  # dead-lettering needs no probe
            most = min(most, GOOD_PROBES)
        first = _first_chunk(rows, min(size.deliveries, most), size.size)
        if not first:
            return None
        all_of_it = len(first) == read < _MAX_ROWS
        may_have_more = admitted == "all" and not (ordered or busy or dead_letters or spec is None or all_of_it)
        wants = math.ceil((most - _count(first)) / size.deliveries) if may_have_more else 0
        return _DueTarget(rule, target, first, size, most, wants)

    def _more(self, due: _DueTarget, share: int, left: int) -> list[PendingRows]:
        """Return up to `share` chunks that follow a target's first, with at most `left` deliveries in total."""
        taken = {row.pending_id for row in due.first}
        rows = [row for row in self._rows(due.rule, due.target) if row.pending_id not in taken]
        left = min(left, due.most - _count(due.first))
        chunks: list[PendingRows] = []
        while rows and len(chunks) < share and rows[0].count <= left:
            chunk = _first_chunk(rows, min(due.size.deliveries, left), due.size.size)
            chunks.append(chunk)
            rows = rows[len(chunk) :]
            left -= _count(chunk)
        return chunks

    def _rows(self, rule: str, target: str, *, smallest: bool = False) -> list[PendingDeliveries]:
        most = min(self.runtime.settings.retry_max_per_target, _MAX_ROWS)  # a row holds at least one delivery
        return self.runtime.ledger.due.rows(self._now, rule, target, most, self.runner, smallest=smallest)

    def _most(self, rule: str, spec: Target | None, status: TargetStatus | None) -> int:
        """Return the maximum number of a target's deliveries in one batch; deliveries beyond its rate stay pending."""
        most = self.runtime.settings.retry_max_per_target
        ramp_until = status.until if status is not None and status.state == "ok" else None
        rate = self._overrides.rate(rule, spec.name, spec.rate_per_second) if spec is not None else None
        tokens = tokens_within(rate, ramp_until, self._now, self.runtime.settings.push_timeout)
        return most if tokens is None else min(most, second_of(tokens))

    def _spec(self, rule: str, target: str) -> Target | None:
        found = self.rules.rules.get(rule)
        return found.destinations.get(target) if found is not None else None


def _count(rows: Sequence[PendingDeliveries]) -> int:
    return sum(row.count for row in rows)


def _first_chunk(rows: Sequence[PendingDeliveries], max_deliveries: int, max_bytes: int) -> PendingRows:
    """Return the first rows that fit a chunk; a single row always fits, because it was part of a chunk before."""
    kept: list[PendingDeliveries] = []
    count = size = 0
    for row in rows:
        count += row.count
        size += row.size
        if kept and (count > max_deliveries or size > max_bytes):
            break
        kept.append(row)
    return kept


def is_ordered(rules: RuleSet, rule: str, target: str) -> bool:
    """Return whether a target is ordered according to the rules; False if the rules do not have the target."""
    found = rules.rules.get(rule)
    return found is not None and target in found.destinations and found.destinations[target].ordered


def keeps_waiting(rules: RuleSet, rule: str, target: str, hold_reason: str) -> bool:
    """Return whether rows that are on hold because of their order must stay on hold under these rules."""
    if not waits_for_order(hold_reason) or not is_ordered(rules, rule, target):
        return False
    return hold_reason == BEHIND_ITS_KEY or rules.rules[rule].destinations[target].errors_tolerance == "none"


def due_ordered_rows(
    runtime: Runtime, rule: str, target: str, now: datetime, runner: str | None
) -> list[PendingDeliveries]:
    """Return the due rows of an ordered target, from shards that no batch has taken and no push has leased.

    Deliveries that were tried come first, because the rest of their key waits for them. The others follow in the order
    of the batches that routed them, oldest first.
    """
    leased = runtime.ledger.order.leases(rule, target)
    most = min(runtime.settings.retry_max_per_target, SMALL_CHUNK.deliveries)
    rows = runtime.ledger.due.rows_in_order(now, rule, target, most)
    free = [row for row in rows if row.order_shard not in leased and runner in (None, row.runner)]
    return sorted(free, key=_sort_key)


def release_ready(runtime: Runtime, rules: RuleSet, runner: str | None) -> None:
    """Make due those rows that are on hold because of their order, but have nothing left to wait for.

    These are deliveries that an operator released or skipped, and shards in which every row waits for deliveries that
    no longer exist.
    """
    waiting = {
        (each.rule, each.target, each.hold_reason)
        for each in runtime.ledger.pending.waiting_targets(runner)
        if each.state == "on_hold" and keeps_waiting(rules, each.rule, each.target, each.hold_reason)
    }
    for rule, target, hold_reason in sorted(waiting):
        if is_marked(hold_reason):
            runtime.ledger.pending.dead_letter(rule, target, hold_reason)
        elif hold_reason == BEHIND_ITS_KEY:
            for shard in runtime.ledger.order.blocked_shards(rule, target):
                runtime.ledger.order.release_shard(rule, target, shard)


def _sort_key(row: PendingDeliveries) -> tuple[bool, str, int]:
    return (row.attempts == 0 and not is_marked(row.hold_reason), row.files[0][0], row.pending_id or 0)
