"""Case folding in compiled code is `str.casefold`, for every code point there is."""

from __future__ import annotations

import sys

from unit.raw_memory import Raw

from eventbridge.matching.kernel import tables as t
from eventbridge.matching.kernel.folding import fold, folding_tables

STEP = 0x1000


def test_every_code_point_folds_as_in_python() -> None:
    """Halves of surrogate pairs too; the folding is at most three times as long."""
    tables = t.Tables()
    points, firsts, folded = folding_tables()
    tables.put_number(t.FOLD_COUNT, len(points))
    for name, array in ((t.FOLD_POINTS, points), (t.FOLD_FIRST, firsts), (t.FOLD_BYTES, folded)):
        tables.put(name, array)
    for first in range(0, sys.maxunicode + 1, STEP):
        text = "".join(map(chr, range(first, first + STEP)))
        raw = Raw(text.encode("utf-8", "surrogatepass"))
        room = Raw(bytes(3 * raw.length))
        written = fold(tables.address, raw.address, 0, raw.length, room.address)

        assert room.taken(written) == text.casefold().encode("utf-8", "surrogatepass"), hex(first)
        assert (
            max(len(one.casefold().encode("utf-8", "replace")) / len(one.encode("utf-8", "replace")) for one in text)
            <= 3
        )
    sizes = [len(chr(point).encode()) for point in points.tolist()]

    assert all(folding <= 3 * size for folding, size in zip(firsts[1:] - firsts[:-1], sizes, strict=True))
