"""Encodes sets of row numbers of one file as short strings, such as the rows of a piece or of a pending row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def encode(rows: Iterable[int]) -> str:
    """Return row numbers as sorted runs, both ends included: `{0, 1, 2, 7}` is `"0-2,7"`.

    Raises ValueError for a negative number, which the encoding cannot represent.
    """
    runs: list[str] = []
    start = last = -2
    for row in sorted(set(rows)):
        if row < 0:
            raise ValueError(f"{row} is not a row number: rows count from 0")
        if row == last + 1:
            last = row
            continue
        if last >= 0:
            runs.append(run(start, last))
        start = last = row
    if last >= 0:
        runs.append(run(start, last))
    return ",".join(runs)


def runs(text: str) -> Iterator[range]:
    """Yield the runs of an encoded row set in ascending order."""
    for text_of_run in filter(None, text.split(",")):
        start, _, last = text_of_run.partition("-")
        yield range(int(start), int(last or start) + 1)


def decode(text: str) -> Iterator[int]:
    """Yield the row numbers of an encoded row set in ascending order."""
    for each in runs(text):
        yield from each


def count(text: str) -> int:
    """Return the number of rows in an encoded row set, without listing them."""
    return sum(map(len, runs(text)))


def join_runs(text: str, following: str) -> str | None:
    """Return the single run that two row sets form in this order; None if their rows are not consecutive."""
    if "," in text or "," in following:
        return None
    (first,), (second,) = runs(text), runs(following)
    return run(first[0], second[-1]) if first.stop == second.start else None


def run(start: int, last: int) -> str:
    """Return one run of row numbers as a string, both ends included; neither may be negative."""
    return str(start) if start == last else f"{start}-{last}"
