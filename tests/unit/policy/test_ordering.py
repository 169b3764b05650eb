"""Pure decisions choose what an ordered target may be sent: shards, turns, what a key waits for, and leases."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbridge.model.partition import Partition, Position
from eventbridge.policy.ordering import (
    BLOCKED,
    DEFERRED_MATCH_FIRST,
    SHARDS,
    SINGLE_KEY,
    DeliveriesByKey,
    Open,
    is_due_for_renewal,
    last_start,
    lease_until,
    may_block,
    shard_of,
    spans_of,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ONE, TWO = Partition("placed", "", 0), Partition("placed", "", 1)

positions = st.builds(Position, st.sampled_from([ONE, TWO]), st.integers(0, 30))
keyed = st.lists(st.tuples(st.sampled_from("abc"), positions), unique_by=lambda pair: pair[1], max_size=20)


def test_shards_never_change() -> None:
    """Shards never change, because the ledger holds pending deliveries by shard."""
    assert [shard_of(key) for key in (SINGLE_KEY, '"a"', '"b"', "17", "null")] == [0, 9, 9, 0, 8]


def test_keys_are_spread_over_all_shards() -> None:
    """Each shard has about a thousand of 16,000 keys."""
    found = Counter(shard_of(str(number)) for number in range(1_000 * SHARDS))

    assert len(found) == SHARDS
    assert min(found.values()) > 800


@given(keyed)
def test_turns_are_bus_order_within_a_partition(deliveries: list[tuple[str, Position]]) -> None:
    """A key's deliveries are sent in the order of offsets within each partition; none is repeated or lost."""
    turns = DeliveriesByKey((key, position, (key, position)) for key, position in deliveries)
    seen = []
    while turns:
        for key, each in turns.heads():
            seen.append(each)
            turns.next(key)

    assert Counter(seen) == Counter(deliveries)
    for key, position in deliveries:
        before = [other.offset for of, other in seen if of == key and other.partition == position.partition]
        assert before == sorted(before)


@given(keyed, keyed)
def test_nothing_goes_before_an_earlier_one_of_its_key(
    waiting: list[tuple[str, Position]], going: list[tuple[str, Position]]
) -> None:
    """A delivery waits exactly for the earlier open deliveries of its key in its partition."""
    found = Open()
    for key, position in waiting:
        found.add(key, position, head=False)

    for key, position in going:
        earlier = any(
            of == key and at.partition == position.partition and at.offset < position.offset for of, at in waiting
        )
        assert (found.reason_to_wait(key, position) == BLOCKED) == earlier


@given(keyed, keyed)
def test_an_unread_span_could_not_block(waiting: list[tuple[str, Position]], going: list[tuple[str, Position]]) -> None:
    """If no span contains anything earlier than the deliveries to send, no waiting delivery is earlier."""
    may = may_block(spans_of(position for _, position in waiting), spans_of(position for _, position in going))
    found = Open()
    for key, position in waiting:
        found.add(key, position, head=False)

    assert may == any(at.partition == to.partition and at.offset < to.offset for _, at in waiting for _, to in going)
    assert may or [found.reason_to_wait(key, position) for key, position in going] == [""] * len(going)


def test_a_key_waits_for_its_head_in_another_partition() -> None:
    """A key waits, in all partitions, for a delivery that was tried or blocks its rule, but that one not for itself."""
    found = Open()
    found.add("a", Position(ONE, 7), head=True)

    assert found.reason_to_wait("a", Position(TWO, 1)) == BLOCKED
    assert found.reason_to_wait("a", Position(ONE, 7)) == ""
    assert found.reason_to_wait("a", Position(ONE, 3)) == ""
    assert found.reason_to_wait("b", Position(TWO, 1)) == ""


def test_events_that_are_not_routed_come_first() -> None:
    """Later events of a partition wait for unrouted ones, whose keys are unknown; earlier events are sent."""
    found = Open()
    found.add_deferred_match(Position(ONE, 9))
    found.add_deferred_match(Position(ONE, 5))

    assert found.reason_to_wait("a", Position(ONE, 6)) == DEFERRED_MATCH_FIRST
    assert found.reason_to_wait("a", Position(ONE, 4)) == ""
    assert found.reason_to_wait("a", Position(TWO, 6)) == ""


def test_a_shard_with_too_much_before_it_is_closed() -> None:
    """Nothing of a shard with too many earlier deliveries is sent; other shards are."""
    found = Open()
    found.close_shard(shard_of("a"))

    assert found.reason_to_wait("a", Position(ONE, 1)) == BLOCKED
    assert next(key for key in "bcdefgh" if not found.reason_to_wait(key, Position(ONE, 1)))


@pytest.mark.parametrize("timeout", [1.0, 10.0, 30.0])
def test_a_lease_outlasts_every_send_that_starts_under_it(timeout: float) -> None:
    """The last send starts one timeout before the lease ends, and a send that starts immediately is never cut short."""
    until = lease_until(NOW, timeout)

    assert last_start(until, timeout) + timedelta(seconds=timeout) <= until
    latest = next(
        NOW + timedelta(seconds=s) for s in range(100) if is_due_for_renewal(until, NOW + timedelta(seconds=s), timeout)
    )
    assert latest + timedelta(seconds=timeout - 1) <= last_start(until, timeout)
