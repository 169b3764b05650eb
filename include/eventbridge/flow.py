"""How much is taken from a bus, and how what it matched is cut into push tasks. Pure; called by listen and route."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import NamedTuple, TypeVar

from eventbridge.queue import Queue

#: Pool and priority weight of every retry chunk; the weight is below those of new deliveries (250 to 750).
SLOW_LANE_POOL = "lane.slow"
SLOW_LANE_WEIGHT = -200

POOL_CLOSED = "pool closed"
TARGET_DISABLED = "target disabled"


Each = TypeVar("Each")


class Waiting(NamedTuple):
    """What one queue holds for a group: next offset `start`, first offset still held, and the end."""

    queue: Queue
    start: int
    earliest: int
    end: int

    @property
    def readable_from(self) -> int:
        """The first offset that can still be read; what lies before it is a gap."""
        return min(max(self.start, self.earliest), self.end)


class Take(NamedTuple):
    """Offsets `start` (included) to `end` (excluded) to take from one queue."""

    queue: Queue
    start: int
    end: int


def plan_ranges(waiting: Sequence[Waiting], max_events: int) -> list[Take]:
    """Return how much to take of each queue: at most `max_events` in all, in proportion to what each holds.

    What is left over by rounding goes to the queues with the largest remainders, so that `max_events` are taken
    if there are as many. A queue that holds something gives at least one event, if `max_events` are enough for that.
    Offsets that a log no longer holds cost nothing and are taken with the rest, to be recorded as a gap. Queues that
    give nothing are left out.
    """
    held = [queue.end - queue.readable_from for queue in waiting]
    shares = _proportional(held, min(max_events, sum(held)))
    takes = [
        Take(each.queue, each.start, each.readable_from + share) for each, share in zip(waiting, shares, strict=True)
    ]
    return [take for take in takes if take.end > take.start]


def _proportional(amounts: Sequence[int], limit: int) -> list[int]:
    total = sum(amounts)
    if total == 0:
        return [0] * len(amounts)
    shares = [amount * limit // total for amount in amounts]
    remainders = [(-(amount * limit % total), index) for index, amount in enumerate(amounts)]
    for _, index in sorted(remainders)[: limit - sum(shares)]:
        shares[index] += 1
    return _nobody_starved(amounts, shares)


def _nobody_starved(amounts: Sequence[int], shares: list[int]) -> list[int]:
    """Give one to each that has something and got nothing, as long as the largest share can spare it.

    A queue with one event beside a backlog that never ends would wait for ever.
    """
    for index, amount in enumerate(amounts):
        largest = max(range(len(shares)), key=shares.__getitem__)
        if amount and not shares[index] and shares[largest] > 1:
            shares[largest] -= 1
            shares[index] = 1
    return shares


def in_turn(waiting: Mapping[Each, datetime], served: Mapping[Each, str]) -> list[Each]:
    """Return what waits since some time in the order in which it is to be served: a backlog has one turn a round.

    What was never served comes first, what was served last comes last (`served`: by which batch, their ids sort by
    time); of two that were served together the one that waits longer comes first.
    """
    return sorted(waiting, key=lambda each: (served.get(each, ""), waiting[each]))


def events_within(max_events: int, max_bytes: int, mean_bytes: float | None) -> int:
    """Return how many events a batch may take so that `max_bytes` holds as far as is known; at least 1.

    `mean_bytes` is what an event of the bus came to in the last batch, None before the first.
    """
    if not mean_bytes:
        return max_events
    return max(1, min(max_events, int(max_bytes / mean_bytes)))


class PoolSlots(NamedTuple):
    """An Airflow pool as it stands: slots in all, and those free now."""

    slots: int
    free: int


@dataclass(frozen=True)
class RoutedPiece:
    """Rows of one delivery file, of one rule and target; never larger than a chunk may be.

    Slices sorted by their ids follow the order of queue and offset. Files do not: each lies in a folder of the try that
    routed it, and a batch may have been routed in several.
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


@dataclass(frozen=True)
class ChunkLimits:
    """What bounds the chunks of a batch; `pools` holds the pools that are known, others are not bounded."""

    max_deliveries: int
    max_bytes: int
    max_handed_out: int
    pools: Mapping[str, PoolSlots] | None = None


@dataclass(frozen=True)
class ChunkPlan:
    """One chunk: what a push task delivers, or, not handed out, what is parked (`held`: until a person acts)."""

    pool: str
    weight: int
    pieces: tuple[RoutedPiece, ...]
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
    pieces: Iterable[RoutedPiece], limits: ChunkLimits, statuses: Mapping[tuple[str, str], str]
) -> list[ChunkPlan]:
    """Return the chunks of a batch, those handed out first and by falling weight; the same for any order of `pieces`.

    A chunk is of one pool and one weight. Rows of a target stay together, so that a target that hangs touches few
    chunks; small ones share. `statuses` is how targets stand (`breaker.TargetState`) by (rule, target), absent = ok.
    Not handed out: a disabled target and a pool of 0 slots (both held), what must not be sent yet (due then), a target
    whose breaker is not closed, what exceeds twice a pool's free slots, and what exceeds `max_handed_out` once every
    pool had its turn (due at once). An order shard is never split over chunks that are handed out: its last rows are
    not, from the first on that must not be sent yet or is too much for one chunk. An ordered target has no breaker:
    its retries wait by key.
    """
    ready: dict[tuple[str, int], list[RoutedPiece]] = defaultdict(list)
    apart: dict[tuple[str, str, str, int, str], list[RoutedPiece]] = defaultdict(list)
    for piece in sorted(pieces, key=_order):
        held = _held(piece, limits, statuses)
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
    withheld = [
        replace(chunk, handed_out=False, held=key[-1])
        for key, group in apart.items()
        for chunk in _pack(([piece] for piece in group), limits)
    ]
    return _hand_out(chunks, limits) + withheld


def _held(piece: RoutedPiece, limits: ChunkLimits, statuses: Mapping[tuple[str, str], str]) -> str | None:
    """Return why a piece is kept back: held text, "" for not held but not handed out, None for ready."""
    status = statuses.get((piece.rule, piece.target), "ok")
    if status == "disabled":
        return TARGET_DISABLED
    if limits.pools is not None and piece.pool in limits.pools and limits.pools[piece.pool].slots == 0:
        return POOL_CLOSED
    if piece.shard is not None:
        return None  # what of a shard must wait keeps all that lies behind it back: see _shards_within
    return "" if piece.early or status != "ok" else None


def _order(piece: RoutedPiece) -> tuple[int, str, str, str, int, str, int]:
    first = int(piece.rows.partition(",")[0].partition("-")[0])
    shard = -1 if piece.shard is None else piece.shard
    return (-piece.weight, piece.pool, piece.rule, piece.target, shard, piece.slice_id, first)


def _shards_within(pieces: Iterable[RoutedPiece], limits: ChunkLimits) -> tuple[list[RoutedPiece], list[RoutedPiece]]:
    """Return what of sorted pieces may be handed out, and the last ones of shards: too early, or too many."""
    kept: list[RoutedPiece] = []
    rest: list[RoutedPiece] = []
    for unit in _units(pieces):
        count = size = 0
        for number, piece in enumerate(unit):
            count += piece.count
            size += piece.size
            if piece.early or (number and (count > limits.max_deliveries or size > limits.max_bytes)):
                rest += unit[number:]  # all that follows: what is sent of a shard is always its first rows
                break
            kept.append(piece)
    return kept, rest


def _units(pieces: Iterable[RoutedPiece]) -> Iterator[list[RoutedPiece]]:
    """Yield what of sorted pieces must share a chunk: the pieces of an order shard, any other piece by itself."""
    for _, unit in groupby(enumerate(pieces), _unit):
        yield [piece for _, piece in unit]


def _unit(numbered: tuple[int, RoutedPiece]) -> tuple[int, str, str, int]:
    number, piece = numbered
    return (number, "", "", 0) if piece.shard is None else (-1, piece.rule, piece.target, piece.shard)


def _pack(units: Iterable[list[RoutedPiece]], limits: ChunkLimits) -> list[ChunkPlan]:
    chunks: list[list[RoutedPiece]] = []
    count = size = 0
    for unit in units:
        more, larger = sum(piece.count for piece in unit), sum(piece.size for piece in unit)
        if not chunks or count + more > limits.max_deliveries or size + larger > limits.max_bytes:
            chunks.append([])
            count = size = 0
        chunks[-1] += unit
        count += more
        size += larger
    return [ChunkPlan(chunk[0].pool, chunk[0].weight, tuple(chunk)) for chunk in chunks]


def _hand_out(chunks: Sequence[ChunkPlan], limits: ChunkLimits) -> list[ChunkPlan]:
    """Mark what exceeds the limits; pools take turns, so that a large one cannot use up the batch's whole limit."""
    pools = limits.pools or {}
    turns: dict[str, int] = defaultdict(int)
    fitting: list[tuple[int, int]] = []
    for index, chunk in enumerate(chunks):
        turn = turns[chunk.pool]
        turns[chunk.pool] += 1
        if chunk.pool not in pools or turn < 2 * pools[chunk.pool].free:
            fitting.append((turn, index))
    chosen = {index for _, index in sorted(fitting)[: limits.max_handed_out]}
    kept = [chunk for index, chunk in enumerate(chunks) if index in chosen]
    rest = [replace(chunk, handed_out=False) for index, chunk in enumerate(chunks) if index not in chosen]
    return kept + rest
