from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbridge.model.chunk import ChunkTotal
from eventbridge.model.partition import Partition
from eventbridge.policy.batch_size import (
    FanOut,
    Part,
    Take,
    Waiting,
    events_handed_out,
    events_within,
    paced_events,
    part_of_chunks,
    plan_ranges,
    round_robin,
)
from eventbridge.rules.types import ChunkSize

Q0, Q1, Q2 = (Partition("orders", "", number) for number in range(3))


def test_everything_is_taken_where_it_fits() -> None:
    """Fewer events than the limit are all taken."""
    takes = plan_ranges([Waiting(Q0, 3, 0, 10), Waiting(Q1, 0, 0, 5)], 100)

    assert takes == [Take(Q0, 3, 10), Take(Q1, 0, 5)]


def test_partitions_of_a_topic_give_the_same() -> None:
    """Partitions of a topic give equal shares; what a partition lacks of its share, the others give."""
    takes = plan_ranges([Waiting(Q0, 0, 0, 900), Waiting(Q1, 0, 0, 100), Waiting(Q2, 0, 0, 5)], 105)

    assert takes == [Take(Q0, 0, 50), Take(Q1, 0, 50), Take(Q2, 0, 5)]


def test_topics_give_the_same_however_many_partitions_they_have() -> None:
    """A quiet topic is read completely, and a hot one gives the rest, the same number from each partition."""
    hot = [Waiting(Partition("hot", "", number), 0, 0, 1_000_000) for number in range(4)]

    takes = plan_ranges([*hot, Waiting(Partition("quiet", "", 0), 0, 0, 40)], 100)

    assert [take.end for take in takes] == [15, 15, 15, 15, 40]


@pytest.mark.parametrize(
    ("events", "seconds", "is_full", "wanted"),
    [
        (40_000, 20.0, True, 30_000),  # shrinks to what takes 15 s
        (40_000, 20.0, False, 30_000),  # also if the bus had no more events
        (40_000, 300.0, True, 20_000),  # to half at least
        (40_000, 10.0, True, 60_000),  # grows
        (40_000, 0.5, True, 160_000),  # to four times as many at most
        (40_000, 10.0, False, None),  # a quick batch that took all events shows nothing
        (1_200, 300.0, True, 1_000),  # never below a thousand
        (3, 300.0, True, 1_000),  # a small batch is not used as the measure
        (10, 40.0, False, 1_000),  # because tasks may start slowly
        (6, 1.0, True, 24),  # a small batch is used if it was quick and full
        (0, 300.0, True, None),
    ],
)
def test_a_batch_follows_its_target_duration(events: int, seconds: float, is_full: bool, wanted: int | None) -> None:
    """The limit follows the duration of the last meaningful batch up and down; the target duration is 15 s."""
    assert paced_events(events, seconds, 15.0, is_full=is_full) == wanted


@pytest.mark.parametrize(
    ("backlog", "wanted"),
    [(0, 15_000), (15_000, 15_000), (20_000, 20_000), (30_000, 30_000), (10**9, 30_000)],
    ids=["none", "as long as the target duration", "somewhat longer", "twice as long", "endless"],
)
def test_a_batch_of_a_backlog_may_take_longer(backlog: int, wanted: int) -> None:
    """A batch of a backlog may take as long as the whole backlog, but at most twice the target duration."""
    assert paced_events(10_000, 10.0, 15.0, is_full=True, backlog=backlog) == wanted


def test_batches_of_a_backlog_grow_faster() -> None:
    """The limit grows eightfold if a fourfold limit would leave more batches."""
    assert paced_events(10_000, 1.0, 15.0, is_full=True, backlog=10**9) == 80_000


def test_a_topic_of_more_weight_gives_more() -> None:
    """A topic with three times the weight gives three times the events; a share that it cannot fill goes to others."""
    loud = [Waiting(Partition("loud", "", number), 0, 0, 1_000) for number in range(2)]
    plain, short = Waiting(Partition("plain", "", 0), 0, 0, 1_000), Waiting(Partition("short", "", 0), 0, 0, 4)

    takes = plan_ranges([*loud, plain, short], 404, {"loud": 3, "short": 9})

    assert [take.end for take in takes] == [150, 150, 100, 4]


def test_a_short_partition_does_not_starve_beside_a_backlog() -> None:
    """Each partition gives one event first if the limit is lower than a topic's number of partitions."""
    many = [Waiting(Partition("many", "", number), 0, 0, 9) for number in range(5)]

    takes = plan_ranges([*many, Waiting(Q0, 0, 0, 1_000_000)], 7)

    assert [take.end for take in takes] == [2, 1, 1, 1, 1, 1]


def test_fewer_events_than_partitions_are_of_other_partitions_each_time() -> None:
    """Consecutive batches of one event take it from each partition in turn."""
    starts = dict.fromkeys((Q0, Q1, Q2), 0)
    served = set()
    for _ in range(9):
        (take,) = plan_ranges([Waiting(partition, start, 0, 100) for partition, start in starts.items()], 1)
        starts[take.partition] = take.end
        served.add(take.partition)

    assert served == {Q0, Q1, Q2}


def test_rounding_leaves_nothing_over() -> None:
    """Remainders of the division are taken too, so that the limit is reached."""
    takes = plan_ranges([Waiting(Q0, 0, 0, 10), Waiting(Q1, 0, 0, 10), Waiting(Q2, 0, 0, 11)], 10)

    assert sorted(take.end for take in takes) == [3, 3, 4]


def test_expired_offsets_cost_nothing() -> None:
    """A gap before the first existing offset is part of the range, but does not count as events."""
    takes = plan_ranges([Waiting(Q0, 0, 1_000_000, 1_000_010), Waiting(Q1, 0, 0, 10)], 20)

    assert takes == [Take(Q0, 0, 1_000_010), Take(Q1, 0, 10)]


def test_a_partition_that_expired_whole_is_moved_over_its_gap() -> None:
    """A partition whose offsets have all expired gives a range that is only a gap."""
    assert plan_ranges([Waiting(Q0, 5, 40, 40)], 20) == [Take(Q0, 5, 40)]


@pytest.mark.parametrize("waiting", [[], [Waiting(Q0, 7, 0, 7)], [Waiting(Q0, 7, 7, 7), Waiting(Q1, 0, 0, 0)]])
def test_nothing_available_gives_no_range(waiting: list[Waiting]) -> None:
    """Partitions that were read to their end give no range."""
    assert plan_ranges(waiting, 20) == []


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)), max_size=6), st.integers(1, 60))
def test_the_limit_holds_and_is_reached(shapes: list[tuple[int, int, int]], limit: int) -> None:
    """The batch takes the smaller of the limit and the available events, from each partition's committed offset."""
    waiting = [
        Waiting(
            Partition("ab"[number % 2], "", number),
            start,
            max(start - before, 0) if before % 2 else start + before,
            start + before + held,
        )
        for number, (start, before, held) in enumerate(shapes)
    ]
    by_partition = {each.partition: each for each in waiting}

    takes = plan_ranges(waiting, limit)

    events = sum(take.end - by_partition[take.partition].readable_from for take in takes)
    assert events == min(limit, sum(each.end - each.readable_from for each in waiting))
    assert all(by_partition[t.partition].start == t.start < t.end <= by_partition[t.partition].end for t in takes)


def test_bytes_bound_the_events_as_far_as_is_known() -> None:
    """The mean event size of the last batch limits the next one; the first is limited only by the number of events."""
    assert events_within(50_000, 64 << 20, None) == 50_000
    assert events_within(50_000, 64 << 20, 700.0) == 50_000
    assert events_within(50_000, 64 << 20, 65_536.0) == 1024
    assert events_within(50_000, 1, 65_536.0) == 1


def test_the_target_served_longest_ago_comes_next() -> None:
    """The target served longest ago is next; ties go to the one that waits longer, and removed targets are skipped."""
    first = datetime(2026, 3, 1, tzinfo=UTC)
    waiting = {name: first + timedelta(seconds=number) for number, name in enumerate("abcdef")}
    served = {"a": "batch-3", "b": "batch-1", "c": "batch-2", "e": "batch-2", "gone": "batch-1"}

    assert round_robin(waiting, served) == ["d", "f", "b", "c", "e", "a"]


SMALL = ChunkSize(100, 1_000)


def test_several_chunks_count_as_full_and_a_single_one_as_it_is_filled() -> None:
    """Several chunks of a pool count as full, because the next delivery did not fit; one counts by its content."""
    several = part_of_chunks(ChunkTotal("p", 3, 90, 300), SMALL)
    alone = part_of_chunks(ChunkTotal("p", 1, 25, 300), SMALL)
    bulk = part_of_chunks(ChunkTotal("p", 1, 5_000, 30_000), SMALL)

    assert (several, alone, bulk) == (Part("p", 90, 0.9), Part("p", 25, 0.3), Part("p", 5_000, 1))


def test_a_batch_takes_what_it_can_hand_out() -> None:
    """If a thousand events filled 40 chunks, a batch with room for 10 chunks takes a quarter of them."""
    fan_out = FanOut.from_parts(1_000, [Part("p", 2_000, 30.0), Part("q", 500, 10.0)])

    assert events_handed_out(fan_out, {}, 10, 1_000_000) == 250
    assert events_handed_out(fan_out, {"p": 15}, 64, 1_000_000) == 500
    assert events_handed_out(fan_out, {"q": 2}, 64, 1_000_000) == 200
    assert events_handed_out(fan_out, {}, 1_000, 250) == 100
    assert events_handed_out(fan_out, {"p": 1}, 64, 1) == 1


def test_a_rule_without_matches_bounds_nothing() -> None:
    """Rules without matches set no limit, and a pool that is not named has only the limit of all pools together."""
    assert events_handed_out(FanOut.from_parts(0, []), {"p": 1}, 1, 1) is None
    assert events_handed_out(FanOut.from_parts(1_000, []), {"p": 1}, 1, 1) is None
    assert events_handed_out(FanOut.from_parts(10, [Part("own", 10, 5.0)]), {"p": 1}, 64, 1_000) == 128


@given(
    events=st.integers(1, 10_000),
    parts=st.lists(st.builds(Part, st.sampled_from("pqr"), st.integers(0, 50_000), st.floats(0, 100)), max_size=5),
    room=st.dictionaries(st.sampled_from("pqr"), st.integers(2, 64)),
)
def test_the_same_again_fits(events: int, parts: list[Part], room: dict[str, int]) -> None:
    """If the next events are like the last ones, the batch fits the room, except for the one event always taken."""
    fan_out = FanOut.from_parts(events, parts)

    most = events_handed_out(fan_out, room, 64, 100_000)

    if most is not None and most > 1:
        share = most / events
        assert share * fan_out.deliveries <= 100_000 * 1.000001
        assert share * sum(fan_out.chunks.values()) <= 64 * 1.000001
        assert all(share * chunks <= room.get(pool, 64) * 1.000001 for pool, chunks in fan_out.chunks.items())
