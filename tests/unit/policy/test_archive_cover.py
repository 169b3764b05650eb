"""A replay reads every event once, whichever runners' archive files contain it."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from eventbridge.model.partition import Partition
from eventbridge.model.redelivery import ArchiveFile
from eventbridge.policy.archive_cover import take_once

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def file(runner: str, start: int, end: int, at: int, partition: int = 0) -> ArchiveFile:
    """Return a file with these offsets that was planned `at` seconds after noon."""
    name = f"{runner}-{partition}-{start}-{at}"
    planned_at = NOON + timedelta(seconds=at)
    return ArchiveFile(name, end - start, name, runner, "rules", planned_at, Partition("t", "", partition), start, end)


def test_one_runners_files_are_taken_whole_in_bus_order() -> None:
    """The files of a single runner are read completely, ordered by partition and offset."""
    files = [file("a", 10, 20, 2), file("a", 0, 10, 1), file("a", 0, 5, 1, partition=1)]

    found = take_once(files, "a")

    assert [(each.partition.partition_id, spans) for each, spans in found] == [
        (0, ((0, 10),)),
        (0, ((10, 20),)),
        (1, ((0, 5),)),
    ]


def test_files_of_others_give_what_its_own_do_not_have() -> None:
    """Other runners' files supply only missing offsets, even in the middle of a file; unneeded files are left out."""
    files = [file("b", 0, 30, 0), file("a", 10, 20, 9), file("c", 5, 15, 1)]

    found = {each.runner: spans for each, spans in take_once(files, "a")}

    assert found == {"a": ((10, 20),), "b": ((0, 10), (20, 30))}


def test_every_offset_is_taken_once() -> None:
    """For any set of files, each offset that a file contains is read from exactly one file."""
    dice = random.Random(1)
    for _ in range(200):
        files = []
        for number in range(dice.randint(1, 12)):
            start = dice.randint(0, 40)
            files.append(file(dice.choice("abc"), start, start + dice.randint(1, 15), number, dice.randint(0, 1)))
        taken = [
            (each.partition.partition_id, offset)
            for each, spans in take_once(files, "a")
            for start, end in spans
            for offset in range(start, end)
        ]

        assert len(taken) == len(set(taken))
        assert set(taken) == {(each.partition.partition_id, n) for each in files for n in range(each.start, each.end)}
