from __future__ import annotations

import random
from dataclasses import replace

from eventbridge.model import rowset
from eventbridge.policy.chunking import (
    ChunkLimits,
    ChunkPlan,
    PlannedPiece,
    PoolSlots,
    chunks_for,
    cut_chunks,
    merge_pieces,
)
from eventbridge.rules.types import ChunkSize


def piece(
    target: str, count: int, *, pool: str = "eventbridge.medium", weight: int = 500, file: str = "a", size: int = 10
) -> PlannedPiece:
    return PlannedPiece(pool, weight, f"rule-{target}", target, file, file, f"0-{count - 1}", count, size)


def limits(max_deliveries: int = 100, **changes: object) -> ChunkLimits:
    values: dict[str, object] = {"small": ChunkSize(max_deliveries, 1000), "max_handed_out": 64, **changes}
    return ChunkLimits(**values)  # type: ignore[arg-type]


def bulk(each: PlannedPiece, deliveries: int = 400, size: int = 100_000) -> PlannedPiece:
    """Return the piece as one of a target with larger chunks."""
    return replace(each, chunk=ChunkSize(deliveries, size))


def targets(chunk: ChunkPlan) -> list[str]:
    return [each.target for each in chunk.pieces]


def test_small_rules_share_a_chunk() -> None:
    """Pieces of one pool share a chunk while it has room."""
    chunks = cut_chunks([piece("a", 40), piece("b", 40), piece("c", 40)], limits(), {})

    assert [targets(chunk) for chunk in chunks] == [["a", "b"], ["c"]]


def test_topics_take_turns_in_what_a_target_gets() -> None:
    """A quiet topic's pieces do not wait for all of a hot topic's, and a shard is not split."""
    hot = [piece("a", 50, file=f"hot/e/0/{number}") for number in range(6)]
    quiet = [piece("a", 50, file=f"quiet/e/0/{number}") for number in range(2)]

    chunks = cut_chunks([*hot, *quiet], limits(max_handed_out=2), {})

    assert [each.slice_id[:3] for chunk in chunks if chunk.handed_out for each in chunk.pieces] == [
        *("hot", "qui", "hot", "qui"),
    ]
    ordered = [replace(each, shard=1) for each in [*hot[:2], *quiet[:1]]]
    kept = [each.slice_id for chunk in cut_chunks(ordered, limits(500), {}) for each in chunk.pieces]
    assert kept == ["hot/e/0/0", "hot/e/0/1", "quiet/e/0/0"]


def test_bytes_bound_a_chunk_too() -> None:
    """A chunk holds at most max_bytes of payload."""
    chunks = cut_chunks([piece("a", 1, size=600), piece("b", 1, size=600)], limits(), {})

    assert [chunk.size for chunk in chunks] == [600, 600]


def test_pools_and_weights_are_never_mixed() -> None:
    """Each chunk has one pool and one weight; the chunks with the highest weight are first."""
    pieces = [
        piece("a", 1, pool="p", weight=250),
        piece("b", 1, pool="p", weight=750),
        piece("c", 1, pool="q", weight=750),
    ]

    chunks = cut_chunks(pieces, limits(), {})

    assert [(chunk.pool, chunk.weight) for chunk in chunks] == [("p", 750), ("q", 750), ("p", 250)]


def test_rows_of_a_target_stay_together() -> None:
    """A target's pieces from several files are adjacent, so that a hanging target affects few chunks."""
    pieces = [piece(target, 30, file=file) for file in "xyz" for target in "ab"]

    chunks = cut_chunks(pieces, limits(max_deliveries=90), {})

    assert [targets(chunk) for chunk in chunks] == [["a", "a", "a"], ["b", "b", "b"]]


def test_a_degraded_target_has_chunks_of_its_own_that_are_not_handed_out() -> None:
    """A degraded target's deliveries are pending, due immediately, and share no chunk with others."""
    chunks = cut_chunks([piece("a", 1), piece("b", 1)], limits(), {("rule-a", "a"): "degraded"})

    assert [(targets(chunk), chunk.handed_out, chunk.hold_reason) for chunk in chunks] == [
        (["b"], True, ""),
        (["a"], False, ""),
    ]


def test_a_disabled_target_is_held() -> None:
    """A disabled target's deliveries are on hold until an operator enables it."""
    chunks = cut_chunks([piece("a", 1)], limits(), {("rule-a", "a"): "disabled"})

    assert [(chunk.handed_out, chunk.hold_reason) for chunk in chunks] == [(False, "target disabled")]


def test_a_closed_pool_is_held() -> None:
    """The deliveries of a pool with 0 slots are on hold."""
    chunks = cut_chunks([piece("a", 1)], limits(pools={"eventbridge.medium": PoolSlots(0, 0)}), {})

    assert [(chunk.handed_out, chunk.hold_reason) for chunk in chunks] == [(False, "pool closed")]


def test_a_pool_gets_at_most_twice_its_free_slots() -> None:
    """Chunks beyond twice the free slots are not handed out but due immediately; an unknown pool has no limit."""
    pieces = [piece(target, 100, pool=pool) for pool in ("busy", "unknown") for target in "abcdef"]

    chunks = cut_chunks(pieces, limits(pools={"busy": PoolSlots(5, 2)}), {})

    out = [chunk.pool for chunk in chunks if chunk.handed_out]
    assert (out.count("busy"), out.count("unknown")) == (4, 6)
    assert {chunk.hold_reason for chunk in chunks} == {""}


def test_every_pool_has_its_turn_before_the_batch_is_full() -> None:
    """A pool with many chunks cannot use up max_handed_out, whatever its weight."""
    pieces = [piece(f"{number:02}", 100, pool="big", weight=750) for number in range(10)] + [piece("z", 1, weight=250)]

    chunks = cut_chunks(pieces, limits(max_handed_out=3), {})

    assert [chunk.pool for chunk in chunks if chunk.handed_out] == ["big", "big", "eventbridge.medium"]
    assert [chunk.handed_out for chunk in chunks] == [True] * 3 + [False] * 8


def test_the_cut_does_not_depend_on_the_order_of_pieces() -> None:
    """Two routes of one batch create the same chunks, whichever slice was routed first."""
    pieces = [piece(target, 30, file=file) for file in "xyz" for target in "abcde"]
    shuffled = random.Random(7).sample(pieces, len(pieces))

    assert cut_chunks(shuffled, limits(), {}) == cut_chunks(pieces, limits(), {})


def test_no_delivery_is_left_out() -> None:
    """Handed out or not, every piece is in exactly one chunk."""
    pieces = [piece(target, 70, file=file) for file in "xyz" for target in "abcde"]
    statuses = {("rule-a", "a"): "degraded", ("rule-b", "b"): "disabled"}

    chunks = cut_chunks(pieces, limits(max_handed_out=2, pools={"eventbridge.medium": PoolSlots(1, 1)}), statuses)

    cut = [each for chunk in chunks for each in chunk.pieces]
    assert sorted(cut, key=repr) == sorted(pieces, key=repr)


def shard(number: int, counts: list[int], target: str = "a") -> list[PlannedPiece]:
    """Return an order shard's pieces, one in each of several files."""
    return [
        replace(piece(target, count, file=f"{index:03}", size=count), shard=number)
        for index, count in enumerate(counts)
    ]


def test_an_order_shard_is_in_one_chunk() -> None:
    """No two chunks that are handed out have rows of the same shard."""
    pieces = [each for number in range(5) for each in shard(number, [20, 20])]

    chunks = cut_chunks(pieces, limits(), {})

    assert [[each.shard for each in chunk.pieces] for chunk in chunks] == [[0, 0, 1, 1], [2, 2, 3, 3], [4, 4]]


def test_of_a_shard_that_is_too_large_the_first_rows_are_handed_out() -> None:
    """Rows that do not fit into one chunk wait in other chunks, even a small piece after a large one."""
    chunks = cut_chunks(shard(3, [60, 30, 50, 5, 90]), limits(), {})

    assert [(chunk.handed_out, [each.count for each in chunk.pieces]) for chunk in chunks] == [
        (True, [60, 30]),
        (False, [50, 5]),
        (False, [90]),
    ]


def test_the_first_rows_of_a_shard_are_those_of_the_first_slices() -> None:
    """A shard's first rows are those of the first slices, not of the first files, whose folders differ by try."""
    pieces = [replace(each, file=f"{9 - index}") for index, each in enumerate(shard(3, [40, 40, 40, 40]))]

    chunks = cut_chunks(pieces, limits(), {})

    assert [[each.slice_id for each in chunk.pieces] for chunk in chunks] == [["000", "001"], ["002", "003"]]


def test_an_early_row_withholds_later_rows_of_its_shard() -> None:
    """Rows of a shard from the first early one on are withheld; earlier rows and other shards are handed out."""
    first, early, behind = shard(3, [10, 10, 10])

    chunks = cut_chunks([behind, first, replace(early, early=True), *shard(4, [10])], limits(), {})

    assert [(chunk.handed_out, [each.file for each in chunk.pieces], chunk.hold_reason) for chunk in chunks] == [
        (True, ["000", "000"], ""),
        (False, ["001", "002"], ""),
    ]


def test_an_ordered_target_is_not_kept_back_for_being_degraded() -> None:
    """A degraded ordered target is handed out, because its retries wait by key; a disabled one is on hold."""
    (chunk,) = cut_chunks(shard(1, [10]), limits(), {("rule-a", "a"): "degraded"})
    (held,) = cut_chunks(shard(1, [10]), limits(), {("rule-a", "a"): "disabled"})

    assert chunk.handed_out
    assert (held.handed_out, held.hold_reason) == (False, "target disabled")


def test_an_early_delivery_is_not_handed_out() -> None:
    """An early delivery waits in a separate chunk that is not on hold, unless its target is disabled."""
    early = replace(piece("a", 1, file="b"), early=True)

    chunks = cut_chunks([piece("a", 1), early], limits(), {})
    disabled = cut_chunks([early], limits(), {("rule-a", "a"): "disabled"})

    assert [(chunk.pieces[0].file, chunk.handed_out, chunk.hold_reason) for chunk in chunks] == [
        ("a", True, ""),
        ("b", False, ""),
    ]
    assert [chunk.hold_reason for chunk in disabled] == ["target disabled"]


def test_a_target_that_takes_more_at_a_time_has_larger_chunks() -> None:
    """A bulk target's chunk is as large as its type allows; other targets keep the usual size."""
    pieces = [bulk(piece("a", 100, file=str(number), size=1000)) for number in range(5)]
    pieces += [piece("b", 100, pool="p", file=str(number), size=1000) for number in range(2)]

    chunks = cut_chunks(pieces, limits(), {})

    assert [(chunk.pool, chunk.count) for chunk in chunks] == [
        ("eventbridge.medium", 400),
        ("eventbridge.medium", 100),
        ("p", 100),
        ("p", 100),
    ]


def test_targets_that_share_a_chunk_take_its_room_in_proportion() -> None:
    """If one target fills half of its limit in a chunk, half of another target's limit is left."""
    half = bulk(piece("a", 200))

    fits = cut_chunks([half, piece("b", 50)], limits(), {})
    too_many = cut_chunks([half, piece("b", 51)], limits(), {})
    too_large = cut_chunks([half, piece("b", 1, size=1000)], limits(), {})

    assert [targets(chunk) for chunk in fits] == [["a", "b"]]
    assert [targets(chunk) for chunk in too_many] == [["a"], ["b"]]
    assert [targets(chunk) for chunk in too_large] == [["a"], ["b"]]


def test_a_full_chunk_has_room_for_exactly_what_it_may_hold() -> None:
    """Rounding neither wastes nor adds room in a chunk, however many pieces fill it."""
    pieces = [bulk(piece("a", 1, file=f"{number:04}", size=0), deliveries=4999) for number in range(5000)]

    chunks = cut_chunks(pieces, limits(), {})

    assert [chunk.count for chunk in chunks] == [4999, 1]


def test_withheld_deliveries_are_in_small_chunks() -> None:
    """Withheld deliveries are in small chunks, because a later batch may take only a few of them."""
    pieces = [bulk(piece(target, 100, file=str(number))) for target in "abc" for number in range(4)]

    chunks = cut_chunks(pieces, limits(max_handed_out=1), {("rule-a", "a"): "degraded"})

    assert [(chunk.handed_out, chunk.count) for chunk in chunks] == [(True, 400)] + 8 * [(False, 100)]
    assert [set(targets(chunk)) for chunk in chunks[1:]] == 4 * [{"c"}] + 4 * [{"a"}]


def test_a_shard_of_a_bulk_target_is_as_large_as_its_chunk() -> None:
    """A bulk target's shard may be as large as the target's chunk, and is not split."""
    chunks = cut_chunks([bulk(each) for each in shard(3, [90, 90, 90, 90, 90])], limits(), {})

    assert [(chunk.handed_out, chunk.count) for chunk in chunks] == [(True, 360), (False, 90)]


def test_rows_that_lie_side_by_side_are_one_piece() -> None:
    """Adjacent rows of one file and target become one piece; rows after a gap do not."""
    first = replace(piece("a", 10), rows="0-9")
    second = replace(piece("a", 5, size=7), rows="10-14")
    gap = replace(piece("a", 1), rows="16")
    some = replace(piece("a", 2), rows="17,19")
    other = replace(piece("b", 1), rows="20")
    of_file = replace(piece("b", 1, file="z"), rows="21")

    whole = merge_pieces([first, second, gap, some, other, of_file])

    assert [each.rows for each in whole] == ["0-14", "16", "17,19", "20", "21"]
    assert (whole[0].count, whole[0].size) == (15, 17)


def test_joined_pieces_name_the_same_rows() -> None:
    """Joined pieces contain each row exactly once."""
    dice = random.Random(3)
    pieces, row = [], 0
    for number in range(200):
        row += dice.choice([0, 0, 1])
        count = dice.randint(1, 4)
        pieces.append(replace(piece("ab"[number % 50 // 25], count), rows=rowset.run(row, row + count - 1)))
        row += count

    whole = merge_pieces(pieces)

    assert [row for each in whole for row in rowset.decode(each.rows)] == [
        row for each in pieces for row in rowset.decode(each.rows)
    ]
    assert sum(each.count for each in whole) == sum(each.count for each in pieces)
    assert len(whole) < len(pieces)


def test_a_batch_hands_a_pool_twice_its_free_slots() -> None:
    """A batch hands out at most twice a pool's free slots; an unknown pool sets no limit."""
    assert chunks_for(PoolSlots(8, 5), 64) == 10
    assert chunks_for(PoolSlots(8, 0), 64) == 0
    assert chunks_for(PoolSlots(100, 100), 64) == 64
    assert chunks_for(None, 64) == 64
