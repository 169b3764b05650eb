"""Chooses which offsets a replay takes from each archive file if several runners landed the same events of a bus."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from eventbridge.model.partition import Partition
from eventbridge.model.redelivery import ArchiveFile

#: A range of offsets: the first number is included, the second excluded.
Span = tuple[int, int]


def take_once(files: Sequence[ArchiveFile], runner: str) -> list[tuple[ArchiveFile, tuple[Span, ...]]]:
    """Return the files, in order of partition and offset, with the offsets to take from each so that no event is taken
    twice.

    Files that `runner` landed take precedence; files of other runners only add the events that its own files lack. A
    file that adds no event is omitted.
    """
    taken: dict[Partition, list[Span]] = defaultdict(list)
    found = []
    for file in sorted(files, key=lambda each: (each.runner != runner, each.planned_at, each.path)):
        spans = _subtract((file.start, file.end), taken[file.partition])
        if spans:
            found.append((file, tuple(spans)))
            taken[file.partition] += spans
    return sorted(found, key=lambda each: (each[0].partition, each[1][0], each[0].path))


def _subtract(span: Span, taken: Sequence[Span]) -> list[Span]:
    """Return those parts of a span that no taken span covers."""
    remaining = [span]
    for start, end in taken:
        remaining = [
            part
            for first, last in remaining
            for part in ((first, min(last, start)), (max(first, end), last))
            if part[0] < part[1]
        ]
    return remaining
