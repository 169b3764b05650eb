"""Checks messages with compiled code.

Messages that the code cannot decide are checked one by one. Only processes that need the compiled code anyway, such as
Spark's workers, use it, because loading the code takes as long as checking several hundred thousand messages one by
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.matching.scan.attributes import ID, SOURCE, TYPE
from eventbridge.matching.scan.memory import PADDING
from eventbridge.matching.scan.recognised import recognise_texts
from eventbridge.matching.scan.texts import TextBuffer, Texts, side_by_side, texts_of
from eventbridge.pipeline.ingest.checking import IDENTITY_BYTES, CheckedRows, CheckResult
from eventbridge.store.columns import same
from eventbridge.transform.kernel.ids import identities_of


def check_compiled(
    bodies: pa.ChunkedArray, refused: Mapping[int, str], seen: AbstractSet[bytes], max_bytes: int
) -> CheckResult:
    """Check messages with compiled code; the result is the same as from `check_one_by_one`."""
    if not len(bodies):
        return CheckedRows(seen).result()
    names = _Names.from_bodies(bodies, max_bytes)
    identities = set(names.identities)
    if refused or not names.sure.all() or len(identities) < len(bodies) or not identities.isdisjoint(seen):
        return _mixed(bodies, refused, names, CheckedRows(seen), max_bytes)
    count = len(bodies)
    types = names.types.dictionary_encode()
    columns = {
        "status": same("valid", count),
        "reason": same(None, count),
        "event_id": names.event_ids,
        "source": names.sources.dictionary_encode(),
        "type": types,
    }
    # not `to_pylist`, which creates a scalar for each row
    named = np.array(types.dictionary.to_pylist(), object)[types.indices.to_numpy()].tolist()
    return CheckResult(columns, named, {"valid": count}, identities)


class _Names(NamedTuple):
    """Whether each message is certainly an event; if it is, its identity, id, source and type, which are undefined
    otherwise."""

    sure: npt.NDArray[np.bool_]
    identities: list[bytes]
    event_ids: pa.StringArray
    sources: pa.StringArray
    types: pa.StringArray

    @classmethod
    def from_bodies(cls, bodies: pa.ChunkedArray, max_bytes: int) -> _Names:
        parts = [_names(texts, max_bytes) for chunk in bodies.chunks for texts in _readable(texts_of(chunk))]
        sure, identities, *columns = zip(*parts, strict=True)
        raw = b"".join(identities)
        return cls(
            np.concatenate(sure),
            [raw[at : at + IDENTITY_BYTES] for at in range(0, len(raw), IDENTITY_BYTES)],
            *(pa.concat_arrays(each) for each in columns),
        )


def _readable(texts: Texts) -> Iterator[Texts]:
    """Yield the bodies in place, but copies of the last ones, because compiled code reads PADDING bytes beyond each
    body."""
    copied = int(np.searchsorted(texts.end, len(texts.buffer) - PADDING, side="right"))
    if copied:
        yield Texts(texts.buffer, texts.start[:copied], texts.end[:copied])
    if copied < len(texts.start):
        yield TextBuffer().take(texts, copied, len(texts.start))


def _names(
    texts: Texts, max_bytes: int
) -> tuple[npt.NDArray[np.bool_], bytes, pa.StringArray, pa.StringArray, pa.StringArray]:
    found = recognise_texts(texts, max_bytes)
    columns = [side_by_side(texts.buffer, found.begin[:, name], found.length[:, name]) for name in (ID, SOURCE, TYPE)]
    return found.sure, identities_of(texts.buffer, found).tobytes(), columns[0], columns[1], columns[2]


def _mixed(
    bodies: pa.ChunkedArray, refused: Mapping[int, str], names: _Names, rows: CheckedRows, max_bytes: int
) -> CheckResult:
    """Check and add the messages in order; those that are not certainly events are checked one by one."""
    unsure = iter(bodies.filter(pa.array(~names.sure)).to_pylist())
    columns = [column.to_pylist() for column in (names.event_ids, names.sources, names.types)]
    rows_of_names = zip(names.sure.tolist(), names.identities, *columns, strict=True)
    for row, (is_sure, identity, event_id, source, type_) in enumerate(rows_of_names):
        body = None if is_sure else next(unsure)
        if row in refused:
            rows.add_malformed(refused[row])
        elif is_sure:
            rows.add_event(event_id, source, type_, identity)
        else:
            rows.add_message(body, max_bytes)
    return rows.result()
