"""Computes the stats that commit adds for a batch, from the batch's files and its rows in the ledger."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa

from eventbridge.delivery.queue_copies import COPY
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.chunk import Chunk
from eventbridge.model.file_detail import LandedRange, Routed, Spent
from eventbridge.model.row_vectors import Rows
from eventbridge.model.stat import AGAIN, BOUNDS_MS, BUCKETS, EVENT_OUTCOMES, Scope, Stat, StatKey
from eventbridge.pipeline.settle.settlement import settlements
from eventbridge.rules import RuleSet
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.columns import NO_TIME, codes_of, times_of

_COLUMNS = ("rule", "target", "status", "published_at", "settled_at")
_OUTCOMES: Mapping[str, str] = {
    "delivered": "delivered",
    "dead_lettered": "dead_lettered",
    "retry_scheduled": "pending",
    "unknown": "pending",
}
_BOUNDS = np.array(BOUNDS_MS, np.int64) * 1_000
_MICROSECOND = timedelta(microseconds=1)

_RuleTarget = tuple[str, str]  # rule, target
_Outcome = tuple[str, str, str]  # rule, target, outcome


class _Sums:
    """The mutable values of one `Stat`, without its key."""

    __slots__ = ("buckets", "count", "cpu", "latency", "matched", "size")

    def __init__(self) -> None:
        self.count = self.matched = self.size = self.cpu = self.latency = 0
        self.buckets = [0] * BUCKETS

    def add(self, other: _Sums) -> None:
        self.count += other.count
        self.matched += other.matched
        self.size += other.size
        self.cpu += other.cpu
        self.latency += other.latency
        self.buckets = [one + two for one, two in zip(self.buckets, other.buckets, strict=True)]

    def observe(self, passed: timedelta) -> None:
        """Add one duration."""
        micros = max(0, passed // _MICROSECOND)
        self.count += 1
        self.latency += micros
        self.buckets[int(np.searchsorted(_BOUNDS, micros))] += 1

    def stat(self, scope: Scope, bus: str, named: _Outcome) -> Stat:
        key = StatKey(scope, bus, *named)
        return Stat(key, self.count, self.matched, self.size, self.cpu, self.latency, tuple(self.buckets))


def stats_of(runtime: Runtime, batch: Batch, now: datetime, segments: Iterable[BatchFile]) -> list[Stat]:
    """Return the stats of a settled batch with these segments that is committed at `now`.

    There is one for each rule, target and outcome, and one for each bus and outcome. Those of a bus also count its
    events, and measure how long the phases of the batch took. Raises StoreError if a file cannot be read.
    """
    chunks = runtime.ledger.chunks.list_for_batch(batch.batch_id)
    by_outcome = _deliveries(runtime, batch)
    routing, unmatched = _routing_cpu(runtime, batch)
    _share_out(by_outcome, _sizes(chunks), _cpu(chunks, segments, routing))
    rules = runtime.rules_of(batch)
    buses: dict[tuple[str, str], _Sums] = defaultdict(_Sums)
    found = []
    for named, sums in by_outcome.items():
        # a normal batch belongs to one runner, whose rules all have the same bus
        bus = batch.bus if batch.kind == "normal" else _bus_of(rules, named[0], batch.bus)
        found.append(sums.stat("target", bus, named))
        buses[bus, named[2]].add(sums)
    for bus, sums in _unmatched_deliveries(runtime, batch, found, rules):
        buses[bus, AGAIN].add(sums)
    for outcome, sums in [*_events(runtime, batch, unmatched), *_stages(runtime, batch, chunks, now)]:
        buses[batch.bus, outcome].add(sums)
    return found + [sums.stat("bus", bus, ("", "", outcome)) for (bus, outcome), sums in buses.items()]


def _bus_of(rules: RuleSet, rule: str, otherwise: str) -> str:
    found = rules.rules.get(rule)
    return found.bus if found is not None else otherwise


def _deliveries(runtime: Runtime, batch: Batch) -> dict[_Outcome, _Sums]:
    found: dict[_Outcome, _Sums] = defaultdict(_Sums)
    for _, table in settlements(runtime, batch.batch_id, _COLUMNS):
        _count(table, found)
    if batch.has_route_stage:
        for sums in found.values():
            sums.matched = sums.count
    return found


def _count(table: pa.Table, totals: dict[_Outcome, _Sums]) -> None:
    """Add the rows of a settlement to `totals`: their number, and the time from publishing to delivery."""
    rule_of, rules = codes_of(table["rule"])
    target_of, targets = codes_of(table["target"])
    status_of, statuses = codes_of(table["status"])
    codes = (rule_of * len(targets) + target_of) * len(statuses) + status_of
    groups, group_of = _groups(codes, len(rules) * len(targets) * len(statuses))
    settled, published = times_of(table["settled_at"]), times_of(table["published_at"])
    timed = (settled != NO_TIME) & np.array([name == "delivered" for name in [*statuses, ""]])[status_of]
    passed = np.maximum(settled[timed] - published[timed], 0)
    counts = np.bincount(group_of, minlength=len(groups))
    latencies = np.bincount(group_of[timed], weights=passed, minlength=len(groups))
    cells = group_of[timed] * BUCKETS + np.searchsorted(_BOUNDS, passed)
    buckets = np.bincount(cells, minlength=len(groups) * BUCKETS).reshape(-1, BUCKETS)
    for number, code in enumerate(groups.tolist()):
        pair, status = divmod(code, len(statuses))
        rule, target = divmod(pair, len(targets))
        sums = _Sums()
        sums.count, sums.latency = int(counts[number]), round(latencies[number])
        sums.buckets = buckets[number].tolist()
        totals[rules[rule], targets[target], _OUTCOMES[statuses[status]]].add(sums)


def _groups(codes: Rows, max_code: int) -> tuple[Rows, Rows]:
    """Return the distinct codes, and the index of each row's code. The codes are sorted only if many values are
    possible."""
    if max_code > 4 * len(codes) + 1_000:
        groups, group_of = np.unique(codes, return_inverse=True)
        return groups, group_of
    groups = np.flatnonzero(np.bincount(codes, minlength=max_code))
    index = np.zeros(max_code + 1, np.int64)
    index[groups] = np.arange(len(groups))
    return groups, index[codes]


def _sizes(chunks: Iterable[Chunk]) -> dict[_RuleTarget, int]:
    sizes: Counter[_RuleTarget] = Counter()
    for chunk in chunks:
        for piece in chunk.pieces:
            sizes[piece.rule, piece.target] += piece.size
    return sizes


def _routing_cpu(runtime: Runtime, batch: Batch) -> tuple[dict[_RuleTarget, int], int]:
    """Return the routing CPU time of each target, in proportion to its matches, and the CPU time of tasks without a
    match."""
    found: Counter[_RuleTarget] = Counter()
    unmatched = 0
    for file in runtime.ledger.files.list_for_batch(batch.batch_id, "delivery"):
        if not isinstance(file.detail, Routed):
            continue
        matched = {key: ids.count for key, ids in file.detail.matched.items() if ids.count}
        if not matched:
            unmatched += file.detail.cpu
        for key, part in zip(matched, _parts(file.detail.cpu, list(matched.values())), strict=False):
            rule, _, target = key.partition("/")
            found[rule, target] += part
    return found, unmatched


def _cpu(
    chunks: Iterable[Chunk], segments: Iterable[BatchFile], routing: Mapping[_RuleTarget, int]
) -> dict[_RuleTarget, int]:
    """Return the total CPU time of each target for routing, pushes and the streaming task."""
    found = Counter(routing)
    for file in segments:
        if isinstance(spent := file.detail, Spent):
            for key, part in zip(spent.outcomes, _parts(spent.cpu, list(spent.outcomes.values())), strict=True):
                rule, _, target = key.partition("/")
                found[rule, target] += part
    for chunk in chunks:
        if chunk.cpu:
            parts = _parts(chunk.cpu, [piece.count for piece in chunk.pieces])
            for piece, part in zip(chunk.pieces, parts, strict=False):
                found[piece.rule, piece.target] += part
    return found


def _share_out(
    by_outcome: Mapping[_Outcome, _Sums], sizes: Mapping[_RuleTarget, int], cpu: Mapping[_RuleTarget, int]
) -> None:
    """Split the size and CPU time of each target among its outcomes, by number of deliveries."""
    outcomes: dict[_RuleTarget, list[_Sums]] = defaultdict(list)
    for (rule, target, _), sums in by_outcome.items():
        outcomes[rule, target].append(sums)
    for of, shares in outcomes.items():
        counts = [each.count for each in shares]
        for each, size, took in zip(
            shares, _parts(sizes.get(of, 0), counts), _parts(cpu.get(of, 0), counts), strict=True
        ):
            each.size, each.cpu = size, took


def _unmatched_deliveries(
    runtime: Runtime, batch: Batch, stats: Iterable[Stat], rules: RuleSet
) -> Iterator[tuple[str, _Sums]]:
    """Yield, by bus, the number of deliveries that no match in this batch created: redriven ones and copies for dead
    letter queues."""
    if batch.kind == "redrive" and not batch.has_route_stage:
        for stat in stats:
            yield stat.key.bus, _sums_of_count(stat.count)
    for row in runtime.ledger.pending.list_for_batch(batch.batch_id):
        if row.reason == COPY:
            yield _bus_of(rules, row.rule, batch.bus), _sums_of_count(row.count)


def _sums_of_count(count: int) -> _Sums:
    sums = _Sums()
    sums.count = count
    return sums


def _parts(total: int, weights: Sequence[int]) -> list[int]:
    """Split a number in proportion to weights, so that the parts add up to it.

    If all weights are 0, the first part gets all.
    """
    whole = sum(weights)
    if len(weights) < 2 or not whole:
        return [total] * len(weights[:1]) + [0] * len(weights[1:])
    ends = [total * part // whole for part in accumulate(weights)]
    return [end - start for start, end in pairwise([0, *ends])]


def _events(runtime: Runtime, batch: Batch, routing_cpu: int) -> Iterator[tuple[str, _Sums]]:
    """Yield the number of landed messages by outcome; `valid` also includes all bytes and `routing_cpu`."""
    counts: Counter[str] = Counter()
    size = 0
    if batch.kind == "normal":
        for file in runtime.ledger.files.list_for_batch(batch.batch_id, "buffer"):
            if isinstance(landed := file.detail, LandedRange):
                counts["valid"] += landed.valid
                counts["duplicate"] += landed.duplicate
                counts["malformed"] += landed.malformed
                counts["tombstone"] += landed.tombstone
                counts["gap"] += sum(end - start for start, end in landed.gaps)
                size += landed.size
    for outcome in EVENT_OUTCOMES:
        sums = _Sums()
        sums.count = counts[outcome]
        if outcome == "valid":
            sums.size, sums.cpu = size, routing_cpu
        if sums.count or sums.size or sums.cpu:
            yield outcome, sums


def _stages(runtime: Runtime, batch: Batch, chunks: Sequence[Chunk], now: datetime) -> Iterator[tuple[str, _Sums]]:
    """Yield how long each phase of a batch took."""
    for outcome, (begin, end) in stage_times(runtime, batch, chunks, now).items():
        sums = _Sums()
        sums.observe(end - begin)
        yield outcome, sums


def stage_times(
    runtime: Runtime, batch: Batch, chunks: Sequence[Chunk], committed: datetime
) -> dict[str, tuple[datetime, datetime]]:
    """Return when each phase of a batch began and ended; the phases end when the batch is routed, pushed and
    committed."""
    budget = timedelta(seconds=runtime.settings.batch_timeout)
    routed = batch.planned_at if batch.deadline_at is None else max(batch.planned_at, batch.deadline_at - budget)
    pushed = max((chunk.ended_at for chunk in chunks if chunk.ended_at is not None), default=routed)
    return {
        "stage_prepare": (batch.planned_at, routed),
        "stage_push": (routed, max(routed, pushed)),
        "stage_settle": (max(routed, pushed), committed),
    }
