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
    """What one has less of than its share goes to the others."""
    takes = plan_ranges([Waiting(Q0, 0, 0, 900), Waiting(Q1, 0, 0, 100), Waiting(Q2, 0, 0, 5)], 105)

    assert takes == [Take(Q0, 0, 50), Take(Q1, 0, 50), Take(Q2, 0, 5)]


def test_topics_give_the_same_however_many_partitions_they_have() -> None:
    """A quiet topic does not wait for a hot one's backlog, which takes the rest, the same of each partition."""
    hot = [Waiting(Partition("hot", "", number), 0, 0, 1_000_000) for number in range(4)]

    takes = plan_ranges([*hot, Waiting(Partition("quiet", "", 0), 0, 0, 40)], 100)

    assert [take.end for take in takes] == [15, 15, 15, 15, 40]


@pytest.mark.parametrize(
    ("events", "seconds", "is_full", "wanted"),
    [
        (40_000, 20.0, True, 30_000),  # shrinks to what takes 15 s
        (40_000, 20.0, False, 30_000),  # also if its bus held no more
        (40_000, 300.0, True, 20_000),  # by half at most
        (40_000, 10.0, True, 60_000),  # grows
        (40_000, 0.5, True, 160_000),  # to four times as many at most
        (40_000, 10.0, False, None),  # quick, and there was no more to take: it says nothing
        (1_200, 300.0, True, 1_000),  # never below a thousand
        (3, 300.0, True, 1_000),  # nor is a small one taken for the measure
        (10, 40.0, False, 1_000),  # as where tasks start slowly
        (6, 1.0, True, 24),  # a quick one that was full is
        (0, 300.0, True, None),
    ],
)
def test_a_batch_follows_its_target_duration(events: int, seconds: float, is_full: bool, wanted: int | None) -> None:
    """Up and down, by what the last batch that says anything took; the target is 15 s."""
    assert paced_events(events, seconds, 15.0, is_full=is_full) == wanted


@pytest.mark.parametrize(
    ("backlog", "wanted"),
    [(0, 15_000), (15_000, 15_000), (20_000, 20_000), (30_000, 30_000), (10**9, 30_000)],
    ids=["none", "as long as the target duration", "somewhat longer", "twice as long", "endless"],
)
def test_a_batch_of_a_backlog_may_take_longer(backlog: int, wanted: int) -> None:
    """As long as the whole takes, where that is more than the target duration; twice that one at most."""
    assert paced_events(10_000, 10.0, 15.0, is_full=True, backlog=backlog) == wanted


def test_batches_of_a_backlog_grow_faster() -> None:
    """Eightfold, where fourfold would leave more batches."""
    assert paced_events(10_000, 1.0, 15.0, is_full=True, backlog=10**9) == 80_000


def test_a_topic_of_more_weight_gives_more() -> None:
    """Three times the weight is three times the events, of each of which there are enough; the rest goes to others."""
    loud = [Waiting(Partition("loud", "", number), 0, 0, 1_000) for number in range(2)]
    plain, short = Waiting(Partition("plain", "", 0), 0, 0, 1_000), Waiting(Partition("short", "", 0), 0, 0, 4)

    takes = plan_ranges([*loud, plain, short], 404, {"loud": 3, "short": 9})

    assert [take.end for take in takes] == [150, 150, 100, 4]


def test_a_short_partition_does_not_starve_beside_a_backlog() -> None:
    """One event of each partition is taken first, where there are fewer events to take than a topic has partitions."""
    many = [Waiting(Partition("many", "", number), 0, 0, 9) for number in range(5)]

    takes = plan_ranges([*many, Waiting(Q0, 0, 0, 1_000_000)], 7)

    assert [take.end for take in takes] == [2, 1, 1, 1, 1, 1]


def test_fewer_events_than_partitions_are_of_other_partitions_each_time() -> None:
    """A batch of one event, time after time, takes from each partition in its turn."""
    starts = dict.fromkeys((Q0, Q1, Q2), 0)
    served = set()
    for _ in range(9):
        (take,) = plan_ranges([Waiting(partition, start, 0, 100) for partition, start in starts.items()], 1)
        starts[take.partition] = take.end
        served.add(take.partition)

    assert served == {Q0, Q1, Q2}


def test_rounding_leaves_nothing_over() -> None:
    """What is odd is taken too, so that the limit is reached."""
    takes = plan_ranges([Waiting(Q0, 0, 0, 10), Waiting(Q1, 0, 0, 10), Waiting(Q2, 0, 0, 11)], 10)

    assert sorted(take.end for take in takes) == [3, 3, 4]


def test_expired_offsets_cost_nothing() -> None:
    """A gap before the first offset still held is taken along and does not count as events."""
    takes = plan_ranges([Waiting(Q0, 0, 1_000_000, 1_000_010), Waiting(Q1, 0, 0, 10)], 20)

    assert takes == [Take(Q0, 0, 1_000_010), Take(Q1, 0, 10)]


def test_a_partition_that_expired_whole_is_moved_over_its_gap() -> None:
    """Offsets that are all gone are taken as a range that is only a gap."""
    assert plan_ranges([Waiting(Q0, 5, 40, 40)], 20) == [Take(Q0, 5, 40)]


@pytest.mark.parametrize("waiting", [[], [Waiting(Q0, 7, 0, 7)], [Waiting(Q0, 7, 7, 7), Waiting(Q1, 0, 0, 0)]])
def test_nothing_available_gives_no_range(waiting: list[Waiting]) -> None:
    """Partitions read to their end give no range."""
    assert plan_ranges(waiting, 20) == []


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)), max_size=6), st.integers(1, 60))
def test_the_limit_holds_and_is_reached(shapes: list[tuple[int, int, int]], limit: int) -> None:
    """Exactly the smaller of the limit and what is on hold is taken, within each partition, from where the group
    stands.
    """
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
    """The mean size of the last batch bounds the next; before the first, only the number of events does."""
    assert events_within(50_000, 64 << 20, None) == 50_000
    assert events_within(50_000, 64 << 20, 700.0) == 50_000
    assert events_within(50_000, 64 << 20, 65_536.0) == 1024
    assert events_within(50_000, 1, 65_536.0) == 1


def test_the_target_served_longest_ago_comes_next() -> None:
    """Never before by batch; of two served together, or never, the one that waits longer; a removed one is not."""
    first = datetime(2026, 3, 1, tzinfo=UTC)
    waiting = {name: first + timedelta(seconds=number) for number, name in enumerate("abcdef")}
    served = {"a": "batch-3", "b": "batch-1", "c": "batch-2", "e": "batch-2", "gone": "batch-1"}

    assert round_robin(waiting, served) == ["d", "f", "b", "c", "e", "a"]


SMALL = ChunkSize(100, 1_000)


def test_several_chunks_count_as_full_and_a_single_one_as_it_is_filled() -> None:
    """A chunk that shares its batch with others of its pool had no room for what came next; one alone may be empty."""
    several = part_of_chunks(ChunkTotal("p", 3, 90, 300), SMALL)
    alone = part_of_chunks(ChunkTotal("p", 1, 25, 300), SMALL)
    bulk = part_of_chunks(ChunkTotal("p", 1, 5_000, 30_000), SMALL)

    assert (several, alone, bulk) == (Part("p", 90, 0.9), Part("p", 25, 0.3), Part("p", 5_000, 1))


def test_a_batch_takes_what_it_can_hand_out() -> None:
    """A thousand events filled 40 chunks: with room for 10 a quarter of them is taken."""
    fan_out = FanOut.from_parts(1_000, [Part("p", 2_000, 30.0), Part("q", 500, 10.0)])

    assert events_handed_out(fan_out, {}, 10, 1_000_000) == 250
    assert events_handed_out(fan_out, {"p": 15}, 64, 1_000_000) == 500
    assert events_handed_out(fan_out, {"q": 2}, 64, 1_000_000) == 200
    assert events_handed_out(fan_out, {}, 1_000, 250) == 100
    assert events_handed_out(fan_out, {"p": 1}, 64, 1) == 1


def test_a_rule_without_matches_bounds_nothing() -> None:
    """Nor does what is not known yet; a pool that is not named bounds a batch with all others only."""
    assert events_handed_out(FanOut.from_parts(0, []), {"p": 1}, 1, 1) is None
    assert events_handed_out(FanOut.from_parts(1_000, []), {"p": 1}, 1, 1) is None
    assert events_handed_out(FanOut.from_parts(10, [Part("own", 10, 5.0)]), {"p": 1}, 64, 1_000) == 128


@given(
    events=st.integers(1, 10_000),
    parts=st.lists(st.builds(Part, st.sampled_from("pqr"), st.integers(0, 50_000), st.floats(0, 100)), max_size=5),
    room=st.dictionaries(st.sampled_from("pqr"), st.integers(2, 64)),
)
def test_the_same_again_fits(events: int, parts: list[Part], room: dict[str, int]) -> None:
    """If the next events are as those before, what is taken exceeds no room, but for the one event that always is."""
    fan_out = FanOut.from_parts(events, parts)

    most = events_handed_out(fan_out, room, 64, 100_000)

    if most is not None and most > 1:
        share = most / events
        assert share * fan_out.deliveries <= 100_000 * 1.000001
        assert share * sum(fan_out.chunks.values()) <= 64 * 1.000001
        assert all(share * chunks <= room.get(pool, 64) * 1.000001 for pool, chunks in fan_out.chunks.items())
