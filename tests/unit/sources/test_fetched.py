"""What was fetched of a partition ahead: a reader takes ranges of it, stops anywhere, and what lies behind it is let
go.
"""

from __future__ import annotations

from eventbridge.sources.fetched import FetchedMessages


def fetched(*offsets: int, begin: int = 0) -> FetchedMessages[str]:
    """Return a partition of which messages with these offsets came, each of ten bytes."""
    found: FetchedMessages[str] = FetchedMessages(begin, begin)
    for offset in offsets:
        found.put(offset, 10, f"m{offset}")
    return found


def test_a_range_is_taken_in_parts() -> None:
    """What lies before the last part is forgotten; a part may be taken again."""
    partition = fetched(3, 4, 6, begin=3)

    assert (partition.end, partition.size) == (7, 30)
    assert partition.take(3, 6) == partition.take(3, 6) == ["m3", "m4"]
    assert partition.take(5, 7) == ["m6"]
    assert (partition.size, partition.holds(5, 7), partition.holds(3, 5)) == (10, True, False)


def test_offsets_without_a_message_count_as_fetched() -> None:
    """A compacted topic and the marks of transactions have such; a range of them is on hold, and empty."""
    partition = fetched(begin=5)
    partition.reach(9)
    partition.reach(7)

    assert (partition.end, partition.holds(5, 9), partition.holds(5, 10), partition.holds(4, 9)) == (
        9,
        True,
        False,
        False,
    )
    assert partition.take(5, 9) == []
