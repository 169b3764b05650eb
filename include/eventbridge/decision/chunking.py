"""How what a batch matched is cut into chunks, and which of them are handed out. Pure; called by route."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from eventbridge.model import rowset
from eventbridge.model.hold_reasons import POOL_CLOSED, TARGET_DISABLED
from eventbridge.model.override import OperatorOverrides
from eventbridge.rule.types import ChunkSize

NO_OVERRIDES = OperatorOverrides()


class PoolSlots(NamedTuple):
    """An Airflow pool as it stands: slots in all, and those free now."""

    slots: int
    free: int


@dataclass(frozen=True)
class PlannedPiece:
    """A routed piece on its way into a chunk: with its file, and the pool and weight of the lane that it takes.

    `chunk` is how large a chunk of its target may be, None: no larger than `ChunkLimits` says.
    Slices sorted by their ids follow the order of partition and offset. Files do not: each lies in a folder of the try
    that routed it, and a batch may have been routed in several.
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
    shard: int | None = None  # of an ordered target
    early: bool = False  # none of it may be sent yet
    chunk: ChunkSize | None = None


@dataclass(frozen=True)
class ChunkLimits:
    """What bounds the chunks of a batch; `pools` holds the pools that are known, others are not bounded.

    `small` is how large a chunk is at least allowed to be: of what is not handed out, always, as it waits together.
    """

    small: ChunkSize
    max_handed_out: int
    pools: Mapping[str, PoolSlots] | None = None


@dataclass(frozen=True)
class ChunkPlan:
    """One chunk: what a push task delivers, or, not handed out, what is pending (`on_hold`: until a person acts)."""

    pool: str
    weight: int
    pieces: tuple[PlannedPiece, ...]
    handed_out: bool = True
    held: str = ""

    @property
    def count(self) -> int:
        """Deliveries in the chunk."""
        return sum(piece.count for piece in self.pieces)

    @property
    def size(self) -> int:
        """Payload bytes in the chunk."""
        return sum(piece.size for piece in self.pieces)


def cut_chunks(
    pieces: Iterable[PlannedPiece],
    limits: ChunkLimits,
    statuses: Mapping[tuple[str, str], str],
    overrides: OperatorOverrides = NO_OVERRIDES,
) -> list[ChunkPlan]:
    """Return the chunks of a batch, those handed out first and by falling weight; the same for any order of `pieces`.

    Topics take turns in what a target gets, so that few events of one are not behind all of another, nor left over.
    A chunk is of one pool and one weight, and as large as its targets may have it: where they differ each takes its
    share of the room. Rows of a target stay together, so that a target that hangs touches few chunks; small ones share.
    `statuses` is how targets stand (`breaker.TargetState`) by (rule, target), absent = ok.
    Not handed out: a disabled target, what operators paused and a pool of 0 slots (all on hold), what must not be sent
    yet (due then), a target whose breaker is not closed, what exceeds twice a pool's free slots, and what exceeds
    `max_handed_out` once every pool had its turn (due at once). An order shard is never split over chunks that are
    handed out: its last rows are not, from the first on that must not be sent yet or is too much for one chunk. An
    ordered target has no breaker: its retries wait by key.
    """
    ready: dict[tuple[str, int], list[PlannedPiece]] = defaultdict(list)
    apart: dict[tuple[str, str, str, int, str], list[PlannedPiece]] = defaultdict(list)
    for piece in _interleaved(sorted(pieces, key=_order)):
        held = _held(piece, limits, statuses, overrides)
        if held is None:
            ready[piece.pool, piece.weight].append(piece)
        else:
            apart[piece.rule, piece.target, piece.pool, piece.weight, held].append(piece)
    chunks = []
    for group in ready.values():
        kept, rest = _shards_within(group, limits)
        chunks += _pack(_units(kept), limits)
        for piece in rest:
            apart[piece.rule, piece.target, piece.pool, piece.weight, ""].append(piece)
    withheld = [chunk for key, group in apart.items() for chunk in _withheld(group, limits, key[-1])]
    return _hand_out(chunks, limits) + withheld


def _held(
    piece: PlannedPiece, limits: ChunkLimits, statuses: Mapping[tuple[str, str], str], overrides: OperatorOverrides
) -> str | None:
    """Return why a piece is kept back: held text, "" for not held but not handed out, None for ready."""
    status = statuses.get((piece.rule, piece.target), "ok")
    if status == "disabled":
        return TARGET_DISABLED
    if paused := overrides.hold_reason(piece.rule, piece.target):
        return paused
    if limits.pools is not None and piece.pool in limits.pools and limits.pools[piece.pool].slots == 0:
        return POOL_CLOSED
    if piece.shard is not None:
        return None  # what of a shard must wait keeps all that lies behind it back: see _shards_within
    return "" if piece.early or status != "ok" else None


def _order(piece: PlannedPiece) -> tuple[int, str, str, str, int, str, int]:
    first = int(piece.rows.partition(",")[0].partition("-")[0])
    shard = -1 if piece.shard is None else piece.shard
    return (-piece.weight, piece.pool, piece.rule, piece.target, shard, piece.slice_id, first)


def _interleaved(pieces: Iterable[PlannedPiece]) -> Iterator[PlannedPiece]:
    """Yield sorted pieces so that topics take turns within a target; those of an order shard stay as they are."""
    for key, group in groupby(pieces, key=lambda each: (each.pool, each.weight, each.rule, each.target, each.shard)):
        if key[-1] is not None:
            yield from group
            continue
        turns: dict[str, int] = defaultdict(int)
        numbered = []
        for number, piece in enumerate(group):
            topic = piece.slice_id.partition("/")[0]  # that of its buffer file's key
            numbered.append((turns[topic], number, piece))
            turns[topic] += 1
        yield from (piece for *_, piece in (sorted(numbered, key=itemgetter(0, 1)) if len(turns) > 1 else numbered))


def _shards_within(
    pieces: Iterable[PlannedPiece], limits: ChunkLimits
) -> tuple[list[PlannedPiece], list[PlannedPiece]]:
    """Return what of sorted pieces may be handed out, and the last ones of shards: too early, or too many."""
    kept: list[PlannedPiece] = []
    rest: list[PlannedPiece] = []
    for unit in _units(pieces):
        count = size = 0
        most = unit[0].chunk or limits.small
        for number, piece in enumerate(unit):
            count += piece.count
            size += piece.size
            if piece.early or (number and (count > most.deliveries or size > most.size)):
                rest += unit[number:]  # all that follows: what is sent of a shard is always its first rows
                break
            kept.append(piece)
    return kept, rest


def _units(pieces: Iterable[PlannedPiece]) -> Iterator[list[PlannedPiece]]:
    """Yield what of sorted pieces must share a chunk: the pieces of an order shard, any other piece by itself."""
    for _, unit in groupby(enumerate(pieces), _unit):
        yield [piece for _, piece in unit]


def _unit(numbered: tuple[int, PlannedPiece]) -> tuple[int, str, str, int]:
    number, piece = numbered
    return (number, "", "", 0) if piece.shard is None else (-1, piece.rule, piece.target, piece.shard)


def _pack(units: Iterable[list[PlannedPiece]], limits: ChunkLimits) -> list[ChunkPlan]:
    chunks: list[list[PlannedPiece]] = []
    room = _Room()
    for unit in units:
        most = unit[0].chunk or limits.small
        count, size = sum(piece.count for piece in unit), sum(piece.size for piece in unit)
        if not chunks or not room.take(most, count, size):
            chunks.append([])
            room = _Room()
            room.take(most, count, size)
        chunks[-1] += unit
    return [ChunkPlan(chunk[0].pool, chunk[0].weight, tuple(chunk)) for chunk in chunks]


class _Room:
    """What is in a chunk: deliveries and bytes, by how large a chunk of their target may be."""

    def __init__(self) -> None:
        self._taken: dict[ChunkSize, tuple[int, int]] = {}

    def take(self, most: ChunkSize, count: int, size: int) -> bool:
        """Take so much of a target, if what is there, each in proportion to what its own chunk may be, leaves room."""
        deliveries, taken_bytes = self._taken.get(most, (0, 0))
        taken = self._taken | {most: (deliveries + count, taken_bytes + size)}
        by_count = sum(count / of.deliveries for of, (count, _) in taken.items())
        by_size = sum(size / of.size for of, (_, size) in taken.items())
        fits = by_count <= 1 and by_size <= 1
        if fits or not self._taken:  # a chunk has something, however large
            self._taken = taken
        return fits


def chunks_for(pool: PoolSlots | None, most: int) -> int:
    """Return how many chunks a batch may hand out to a pool, `most` at the most: twice its free slots, if it is known.

    So many come to be pushed before the deadline although each takes its whole budget.
    """
    return most if pool is None else min(most, 2 * pool.free)


def joined(pieces: Iterable[PlannedPiece]) -> list[PlannedPiece]:
    """Return a chunk's pieces, those as one whose rows are one run of a file: it is read once for each piece."""
    whole: list[PlannedPiece] = []
    for piece in pieces:
        before = whole[-1] if whole else None
        rows = rowset.joined_run(before.rows, piece.rows) if before and _is_beside(before, piece) else None
        if before and rows:
            whole[-1] = replace(before, rows=rows, count=before.count + piece.count, size=before.size + piece.size)
        else:
            whole.append(piece)
    return whole


def _is_beside(before: PlannedPiece, piece: PlannedPiece) -> bool:
    return (before.file, before.rule, before.target) == (piece.file, piece.rule, piece.target)


def _hand_out(chunks: Sequence[ChunkPlan], limits: ChunkLimits) -> list[ChunkPlan]:
    """Mark what exceeds the limits; pools take turns, so that a large one cannot use up the batch's whole limit."""
    room = {name: chunks_for(pool, len(chunks)) for name, pool in (limits.pools or {}).items()}
    turns: dict[str, int] = defaultdict(int)
    fitting: list[tuple[int, int]] = []
    for index, chunk in enumerate(chunks):
        turn = turns[chunk.pool]
        turns[chunk.pool] += 1
        if turn < room.get(chunk.pool, len(chunks)):
            fitting.append((turn, index))
    chosen = {index for _, index in sorted(fitting)[: limits.max_handed_out]}
    kept = [chunk for index, chunk in enumerate(chunks) if index in chosen]
    rest = [chunk for index, chunk in enumerate(chunks) if index not in chosen]
    return kept + [part for chunk in rest for part in _withheld(chunk.pieces, limits)]


def _withheld(pieces: Iterable[PlannedPiece], limits: ChunkLimits, held: str = "") -> list[ChunkPlan]:
    """Return what is not handed out in small chunks: the batch that takes it up again may take little of it, or all."""
    chunks = _pack(([replace(piece, chunk=None)] for piece in pieces), limits)
    return [replace(chunk, handed_out=False, held=held) for chunk in chunks]
