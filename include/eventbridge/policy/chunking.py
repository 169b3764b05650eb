"""Cuts the matches of a batch into chunks, and decides which of them are handed out. Route calls it.

`pipeline/retry/chunks.py` cuts the chunks of retries, and `dead_letters/redrive_inputs.py` cuts those of redrives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from eventbridge.model import rowset
from eventbridge.model.pending import POOL_CLOSED, TARGET_DISABLED
from eventbridge.model.rule_state import OperatorOverrides
from eventbridge.rules.types import ChunkSize

NO_OVERRIDES = OperatorOverrides()


class PoolSlots(NamedTuple):
    """The slots of an Airflow pool: the total, and how many are free now."""

    slots: int
    free: int


@dataclass(frozen=True)
class PlannedPiece:
    """A routed piece that is not yet in a chunk, with its file, pool and weight.

    `chunk` is the maximum size of its target's chunks; if it is None, that of `ChunkLimits` applies. Sorting by
    `slice_id` gives the order of partition and offset. Sorting by `file` does not, because a file is in a folder of the
    attempt that routed it, and a batch may have been routed in several attempts.
    """

    pool: str
    weight: int
    rule: str
    target: str
    slice_id: str
    file: str
    rows: str
    count: int
    size: int  # payload bytes
    shard: int | None = None  # None unless the target is ordered
    early: bool = False  # True if none of its rows may be sent yet
    chunk: ChunkSize | None = None


@dataclass(frozen=True)
class ChunkLimits:
    """The limits on the chunks of a batch; `pools` holds the known pools. Other pools are not bounded.

    `small` is the smallest limit of a chunk; it always applies to pieces that are not handed out, which share chunks.
    """

    small: ChunkSize
    max_handed_out: int
    pools: Mapping[str, PoolSlots] | None = None


@dataclass(frozen=True)
class ChunkPlan:
    """One chunk: the work of a push task or, if it is not handed out, pieces that become pending deliveries.

    They are on hold if the chunk has a `hold_reason`, else scheduled.
    """

    pool: str
    weight: int
    pieces: tuple[PlannedPiece, ...]
    handed_out: bool = True
    hold_reason: str = ""

    @property
    def count(self) -> int:
        """Return the number of deliveries in the chunk."""
        return sum(piece.count for piece in self.pieces)

    @property
    def size(self) -> int:
        """Return the payload bytes in the chunk."""
        return sum(piece.size for piece in self.pieces)


def cut_chunks(
    pieces: Iterable[PlannedPiece],
    limits: ChunkLimits,
    statuses: Mapping[tuple[str, str], str],
    overrides: OperatorOverrides = NO_OVERRIDES,
) -> list[ChunkPlan]:
    """Return the chunks of a batch, first those handed out; the order of `pieces` does not matter.

    Topics alternate within a target, so that few events of one topic neither wait for all events of another nor are
    withheld. A chunk has one pool and one weight, and the largest size that its targets allow. If their limits differ,
    each target uses up a share of the chunk in proportion to its own limit. Rows of a target stay together, so that a
    hanging target affects few chunks; small targets share chunks. `statuses` holds the state of targets
    (`rule_state.TargetState`) by (rule, target); a target that is absent is ok. The following are not handed out.
    Deliveries of a disabled target, deliveries paused by operators and deliveries in a pool of 0 slots are on hold.
    Deliveries that must not be sent yet fall due when they may be sent. The others are due immediately: deliveries of a
    target whose breaker is not closed, and those in excess of twice a pool's free slots or of `max_handed_out`, which
    the pools share in turn. An order shard is never split over several chunks that are handed out, so its rows are
    withheld, beginning with the first piece that must not be sent yet or does not fit into the same chunk. An ordered
    target has no breaker, because its retries wait by key.
    """
    ready: dict[tuple[str, int], list[PlannedPiece]] = defaultdict(list)
    apart: dict[tuple[str, str, str, int, str], list[PlannedPiece]] = defaultdict(list)
    for piece in _interleaved(sorted(pieces, key=_order)):
        hold_reason = _hold_reason_of(piece, limits, statuses, overrides)
        if hold_reason is None:
            ready[piece.pool, piece.weight].append(piece)
        else:
            apart[piece.rule, piece.target, piece.pool, piece.weight, hold_reason].append(piece)
    chunks = []
    for group in ready.values():
        kept, rest = _shards_within(group, limits)
        chunks += _pack(_units(kept), limits)
        for piece in rest:
            apart[piece.rule, piece.target, piece.pool, piece.weight, ""].append(piece)
    withheld = [chunk for key, group in apart.items() for chunk in _not_handed_out(group, limits, key[-1])]
    return _hand_out(chunks, limits) + withheld


def _hold_reason_of(
    piece: PlannedPiece, limits: ChunkLimits, statuses: Mapping[tuple[str, str], str], overrides: OperatorOverrides
) -> str | None:
    """Return None if a piece may be handed out, else its hold reason, which is "" if it is only scheduled."""
    status = statuses.get((piece.rule, piece.target), "ok")
    if status == "disabled":
        return TARGET_DISABLED
    if paused := overrides.hold_reason(piece.rule, piece.target):
        return paused
    if limits.pools is not None and piece.pool in limits.pools and limits.pools[piece.pool].slots == 0:
        return POOL_CLOSED
    if piece.shard is not None:
        return None  # a waiting row of a shard also holds back all later rows; see _shards_within
    return "" if piece.early or status != "ok" else None


def _order(piece: PlannedPiece) -> tuple[int, str, str, str, int, str, int]:
    first = int(piece.rows.partition(",")[0].partition("-")[0])
    shard = -1 if piece.shard is None else piece.shard
    return (-piece.weight, piece.pool, piece.rule, piece.target, shard, piece.slice_id, first)


def _interleaved(pieces: Iterable[PlannedPiece]) -> Iterator[PlannedPiece]:
    """Yield sorted pieces so that topics alternate within a target; pieces of an order shard keep their order."""
    for key, group in groupby(pieces, key=lambda each: (each.pool, each.weight, each.rule, each.target, each.shard)):
        if key[-1] is not None:
            yield from group
            continue
        turns: dict[str, int] = defaultdict(int)
        numbered = []
        for number, piece in enumerate(group):
            topic = piece.slice_id.partition("/")[0]  # the topic in the key of its buffer file
            numbered.append((turns[topic], number, piece))
            turns[topic] += 1
        yield from (piece for *_, piece in (sorted(numbered, key=itemgetter(0, 1)) if len(turns) > 1 else numbered))


def _shards_within(
    pieces: Iterable[PlannedPiece], limits: ChunkLimits
) -> tuple[list[PlannedPiece], list[PlannedPiece]]:
    """Return the sorted pieces that may be handed out, and the rest: the last pieces of shards that are early or too
    large."""
    kept: list[PlannedPiece] = []
    rest: list[PlannedPiece] = []
    for unit in _units(pieces):
        count = size = 0
        most = unit[0].chunk or limits.small
        for number, piece in enumerate(unit):
            count += piece.count
            size += piece.size
            if piece.early or (number and (count > most.deliveries or size > most.size)):
                rest += unit[number:]  # all following pieces too, because a shard is sent in order
                break
            kept.append(piece)
    return kept, rest


def _units(pieces: Iterable[PlannedPiece]) -> Iterator[list[PlannedPiece]]:
    """Yield the sorted pieces that must share a chunk: all pieces of an order shard, any other piece alone."""
    for _, unit in groupby(enumerate(pieces), _unit):
        yield [piece for _, piece in unit]


def _unit(numbered: tuple[int, PlannedPiece]) -> tuple[int, str, str, int]:
    number, piece = numbered
    return (number, "", "", 0) if piece.shard is None else (-1, piece.rule, piece.target, piece.shard)


def _pack(units: Iterable[list[PlannedPiece]], limits: ChunkLimits) -> list[ChunkPlan]:
    chunks: list[list[PlannedPiece]] = []
    fill = _ChunkFill()
    for unit in units:
        most = unit[0].chunk or limits.small
        count, size = sum(piece.count for piece in unit), sum(piece.size for piece in unit)
        if not chunks or not fill.take(most, count, size):
            chunks.append([])
            fill = _ChunkFill()
            fill.take(most, count, size)
        chunks[-1] += unit
    return [ChunkPlan(chunk[0].pool, chunk[0].weight, tuple(chunk)) for chunk in chunks]


class _ChunkFill:
    """Counts the deliveries and bytes in a chunk, by the chunk limit of their target."""

    def __init__(self) -> None:
        self._taken: dict[ChunkSize, tuple[int, int]] = {}

    def take(self, chunk_size: ChunkSize, count: int, size: int) -> bool:
        """Add rows of a target if the used shares of all chunk limits sum to at most one; return whether they fit.

        The first rows are added in any case.
        """
        deliveries, taken_bytes = self._taken.get(chunk_size, (0, 0))
        taken = self._taken | {chunk_size: (deliveries + count, taken_bytes + size)}
        by_count = sum(count / of.deliveries for of, (count, _) in taken.items())
        by_size = sum(size / of.size for of, (_, size) in taken.items())
        fits = by_count <= 1 and by_size <= 1
        if fits or not self._taken:  # the first rows of a chunk are added even if they exceed its limits
            self._taken = taken
        return fits


def chunks_for(pool: PoolSlots | None, limit: int) -> int:
    """Return how many chunks a batch may hand out to a pool: twice its free slots if the pool is known, at most
    `limit`.

    That many are pushed before the deadline even if each uses its entire budget.
    """
    return limit if pool is None else min(limit, 2 * pool.free)


def merge_pieces(pieces: Iterable[PlannedPiece]) -> list[PlannedPiece]:
    """Return a chunk's pieces, merging those with consecutive rows of one file, because each piece costs one read."""
    whole: list[PlannedPiece] = []
    for piece in pieces:
        before = whole[-1] if whole else None
        rows = rowset.join_runs(before.rows, piece.rows) if before and _is_beside(before, piece) else None
        if before and rows:
            whole[-1] = replace(before, rows=rows, count=before.count + piece.count, size=before.size + piece.size)
        else:
            whole.append(piece)
    return whole


def _is_beside(before: PlannedPiece, piece: PlannedPiece) -> bool:
    return (before.file, before.rule, before.target) == (piece.file, piece.rule, piece.target)


def _hand_out(chunks: Sequence[ChunkPlan], limits: ChunkLimits) -> list[ChunkPlan]:
    """Withhold chunks in excess of the limits.

    Pools take turns, so that a large one cannot use up the batch's limit.
    """
    slots = {name: chunks_for(pool, len(chunks)) for name, pool in (limits.pools or {}).items()}
    turns: dict[str, int] = defaultdict(int)
    fitting: list[tuple[int, int]] = []
    for index, chunk in enumerate(chunks):
        turn = turns[chunk.pool]
        turns[chunk.pool] += 1
        if turn < slots.get(chunk.pool, len(chunks)):
            fitting.append((turn, index))
    chosen = {index for _, index in sorted(fitting)[: limits.max_handed_out]}
    kept = [chunk for index, chunk in enumerate(chunks) if index in chosen]
    rest = [chunk for index, chunk in enumerate(chunks) if index not in chosen]
    return kept + [part for chunk in rest for part in _not_handed_out(chunk.pieces, limits)]


def _not_handed_out(pieces: Iterable[PlannedPiece], limits: ChunkLimits, hold_reason: str = "") -> list[ChunkPlan]:
    """Cut the pieces that are not handed out into small chunks, so that the next batch can take just a few of them."""
    chunks = _pack(([replace(piece, chunk=None)] for piece in pieces), limits)
    return [replace(chunk, handed_out=False, hold_reason=hold_reason) for chunk in chunks]
