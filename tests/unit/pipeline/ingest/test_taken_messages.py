"""What an open batch took is read back by range, as much as fits one file."""

from __future__ import annotations

import pytest

from eventbridge.model.partition import Partition
from eventbridge.pipeline.ingest.taken_messages import TakenMessages

PARTITION = Partition("orders", "", 0)


@pytest.fixture
def taken() -> TakenMessages:
    """Offsets 5 to 15 in two pieces: 8 and 9 hold nothing, 7 has no body, 6 and 12 are no events."""
    found = TakenMessages()
    found.add(PARTITION, 5, 10, [(5, 100, b"a"), (6, 101, b"bb"), (7, 102, None)], {1: "no type"})
    found.add(PARTITION, 10, 15, [(10, 103, b"c"), (12, 104, b"ddd"), (14, 105, b"e")], {1: "no source"})
    return found


@pytest.mark.parametrize(
    ("asked", "offsets", "refused", "until"),
    [
        ((5, 15, 10, 99), [5, 6, 7, 10, 12, 14], {1: "no type", 4: "no source"}, 15),
        ((6, 13, 10, 99), [6, 7, 10, 12], {0: "no type", 3: "no source"}, 13),
        ((8, 10, 10, 99), [], {}, 10),
        ((5, 15, 3, 99), [5, 6, 7], {1: "no type"}, 8),
        ((8, 15, 10, 4), [10, 12], {1: "no source"}, 13),
        ((5, 11, 4, 99), [5, 6, 7, 10], {1: "no type"}, 11),
    ],
    ids=["all", "a part", "a gap", "so many", "so many bytes", "so many, to its end"],
)
def test_a_range_is_read_as_far_as_it_fits(
    taken: TakenMessages,
    asked: tuple[int, int, int, int],
    offsets: list[int],
    refused: dict[int, str],
    until: int,
) -> None:
    """The rows that are no events come with the reason, by their number; `until` is the offset that is accounted for.

    `asked`: from which offset and up to which one, at most how many messages, and at most how many bytes.
    """
    table, why, to = taken.messages(PARTITION, *asked)

    assert (table["offset"].to_pylist(), why, to) == (offsets, refused, until)


@pytest.mark.parametrize(("start", "end", "covered"), [(5, 15, True), (4, 9, False), (9, 16, False)])
def test_it_covers_what_was_taken_and_no_more(taken: TakenMessages, start: int, end: int, covered: bool) -> None:
    """Of another partition it has nothing."""
    assert taken.covers(PARTITION, start, end) is covered
    assert not taken.covers(Partition("orders", "", 1), start, end)
