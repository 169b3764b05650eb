"""Holds, as vectors, those rows of a settlement that are waiting for a retry, and groups them into pending rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.event.fingerprints import Ids
from eventbridge.model.partition import Partition, Span
from eventbridge.model.pending import NO_CHUNK
from eventbridge.model.row_vectors import Rows
from eventbridge.store.columns import NO_CODE, NO_TIME, codes_of, column_of, ids_of, numbers_of, times_of

Flags = npt.NDArray[np.bool_]

#: The columns of a settlement that `WaitingRows` needs.
COLUMNS: Final = [
    "rule", "target", "chunk_id", "file", "row", "status", "attempts", "due_at", "lane", "hold_reason", "arrived_at",
    "not_before", "settled_at", "reason", "delivery_id", "published_at",
]  # fmt: skip

_SECOND: Final = 1_000_000


class PendingGroup(NamedTuple):
    """The values that the deliveries of one pending row have in common; `reason` is the one that users see."""

    chunk_id: int
    rule: str
    target: str
    reason: str
    attempts: int
    due_second: int
    lane: str
    hold_reason: str
    shard: int | None


class WaitingRows:
    """Rows of one settlement, with a vector for each column; strings are represented by indices into `texts`.

    Rows with the same `span` become one pending row; rows that belong to no span have NO_CODE. `shard`, `partition` and
    `offset` are NO_CODE except for deliveries of ordered targets. Pending rows get `kept_reason` and `hold_reason`.
    Times are in microseconds since 1970.
    """

    def __init__(self, table: pa.Table) -> None:
        """The argument is a table with COLUMNS and dictionary-coded strings."""
        self.texts: list[str] = []
        self.partitions: list[Partition] = []
        self._codes: dict[str, int] = {}
        self._partition_codes: dict[Partition, int] = {}
        count = table.num_rows
        self.ids: Ids = ids_of(table["delivery_id"])
        self.chunk_id = numbers_of(table["chunk_id"], NO_CHUNK)
        self.rule, self.target, self.file, self.status, self.reason, self.lane, self.hold_reason = (
            self._coded(table[name]) for name in ("rule", "target", "file", "status", "reason", "lane", "hold_reason")
        )
        self.row, self.attempts = numbers_of(table["row"]), numbers_of(table["attempts"])
        self.due_at, self.arrived_at = times_of(table["due_at"]), times_of(table["arrived_at"])
        self.published_at = times_of(table["published_at"])
        self.age_begins = np.maximum(self.arrived_at, times_of(table["not_before"]))  # see `age_begins`
        self.responded = times_of(table["settled_at"]) != NO_TIME
        self.kept_reason = self.status.copy()
        self.shard, self.partition, self.offset, self.span = np.full((4, count), NO_CODE)

    def code(self, text: str) -> int:
        """Return the code of a string; a new string gets a new code."""
        found = self._codes.setdefault(text, len(self.texts))
        if found == len(self.texts):
            self.texts.append(text)
        return found

    def partition_code(self, partition: Partition) -> int:
        """Return the code of a partition; a new partition gets a new code."""
        found = self._partition_codes.setdefault(partition, len(self.partitions))
        if found == len(self.partitions):
            self.partitions.append(partition)
        return found

    def has(self, column: Rows, *texts: str) -> Flags:
        """Return which rows have one of these strings in a column."""
        return np.isin(column, [self.code(text) for text in texts])

    def target_flags(self, chosen: Callable[[str, str], bool]) -> Flags:
        """Return which rows have targets for which `chosen` is true."""
        pairs, of_row = np.unique(self.rule * len(self.texts) + self.target, return_inverse=True)
        flags = [chosen(*(self.texts[code] for code in divmod(pair, len(self.texts)))) for pair in pairs.tolist()]
        return np.array(flags, bool)[of_row]

    def group_by_file(self, at: Rows) -> Iterator[tuple[str, Rows]]:
        """Yield each file with those of the given positions whose rows are in the file, in ascending order."""
        for code, part in _split(self.file[at], at):
            yield self.texts[code], part

    def groups(self) -> Iterator[tuple[PendingGroup, Rows]]:
        """Yield each group with the positions of its rows, ordered by its first row."""
        keys = {
            "chunk_id": self.chunk_id,
            "rule": self.rule,
            "target": self.target,
            "reason": self.kept_reason,
            "attempts": self.attempts,
            "due_second": self._due_second(),
            "lane": self.lane,
            "hold_reason": self.hold_reason,
            "shard": self.shard,
            "span": self.span,
        }
        vectors = [*keys.values(), np.arange(len(self.row))]
        table = pa.Table.from_arrays([column_of(each, pa.int64()) for each in vectors], [*keys, "at"])
        found = table.group_by(list(keys), use_threads=False).aggregate([("at", "list")])
        positions = found["at_list"].combine_chunks()
        starts, every = (numbers_of(pa.chunked_array([each])) for each in (positions.offsets, positions.values))
        columns = zip(*(found[name].to_pylist() for name in keys), strict=True)
        for number, each in enumerate(columns):
            chunk_id, rule, target, reason, attempts, due_second, lane, hold_reason, shard, span = each
            yield (
                PendingGroup(
                    chunk_id,
                    self.texts[rule],
                    self.texts[target],
                    self.texts[reason],
                    attempts,
                    due_second,
                    self._lane(lane, shard, span),
                    self.texts[hold_reason] if hold_reason != NO_CODE else "",
                    None if shard == NO_CODE else shard,
                ),
                every[starts[number] : starts[number + 1]],
            )

    def _lane(self, lane: int, shard: int, span: int) -> str:
        """Return a row's lane; for ordered targets and spans, a name that makes their pending rows distinct."""
        if shard != NO_CODE:
            return f"order.{shard}"
        return self.texts[lane] if span == NO_CODE else f"span.{span}"

    def spans(self, at: Rows) -> tuple[Span, ...]:
        """Return the spans of the deliveries at some positions, by partition; () if they are not ordered."""
        at = at[self.partition[at] != NO_CODE]
        return tuple(
            sorted(
                Span(self.partitions[code], int(self.offset[part].min()), int(self.offset[part].max()))
                for code, part in _split(self.partition[at], at)
            )
        )

    def _coded(self, column: pa.ChunkedArray) -> Rows:
        codes, texts = codes_of(column)
        return np.array([*map(self.code, texts), NO_CODE])[codes]

    def _due_second(self) -> Rows:
        """Return the second since 1970 at which each row is due, never before its policy allows.

        Rows that are due in the same second can share a pending row. This keeps the number of pending rows low.
        """
        after_response = self.has(self.status, "retry_scheduled") & self.responded
        # any other row may be sent earlier in its second
        return np.where(after_response, -(-self.due_at // _SECOND), self.due_at // _SECOND)


def _split(codes: Rows, values: Rows) -> Iterator[tuple[int, Rows]]:
    """Yield each code with the values that have it, in ascending order of codes."""
    order = np.argsort(codes, kind="stable")
    found, starts = np.unique(codes[order], return_index=True)
    yield from zip(
        found.tolist(), np.split(values[order], starts[1:]), strict=False
    )  # without rows, there is one part but no code
