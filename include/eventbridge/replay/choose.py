"""Chooses the events that a replay takes of an archive file: by offset, pattern, and outcome of their deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.event.cloudevent import parse_event
from eventbridge.event.ids import delivery_id
from eventbridge.matching import Matcher, compile_rules
from eventbridge.matching.consistency import flatten
from eventbridge.matching.pattern import Pattern, parse_pattern
from eventbridge.matching.reference import matches_leaves
from eventbridge.matching.scan.texts import padded_texts
from eventbridge.model.redelivery import Replay, ReplayPart
from eventbridge.replay.archive import Found
from eventbridge.replay.past import DELIVERED, Past, PastOutcome
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.columns import flag_column
from eventbridge.store.event_sql import COLUMNS, rows_where
from eventbridge.store.parquet import read_table

Mask = npt.NDArray[np.bool_]


class Chooser:
    """Chooses events for one part of a replay."""

    def __init__(self, runtime: Runtime, replay: Replay, part: ReplayPart) -> None:
        self._runtime = runtime
        self._replay = replay
        self._part = part
        pattern = replay.selection.get("pattern")
        self._pattern: Pattern | None = None if pattern is None else parse_pattern(pattern)
        self._matcher: Matcher | None = None if self._pattern is None else compile_rules([self._pattern])
        self._sql: str | None = replay.selection.get("sql")
        self._past: Past | None = None
        if replay.skip_delivered or self._sql is not None:
            self._past = Past(runtime, part.rule, part.target, codes="code" in (self._sql or "").lower())

    def events(self, found: Found, first: int) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """Return the events to take of a file, from row `first` on and in its order, and their row numbers."""
        file, spans = found
        table = read_table(self._runtime.store, file.path).slice(first)
        chosen = np.array(pc.equal(table["status"], "valid").to_numpy(), np.bool_)
        if spans is not None:
            chosen = chosen & _within(table["offset"].to_numpy(), spans)
        if self._matcher is not None:
            chosen[chosen] = self._matched(table.filter(flag_column(chosen)))
        if self._past is not None:
            chosen[chosen] = self._by_outcome(table.filter(flag_column(chosen)), file.batch_id, self._past)
        rows: npt.NDArray[np.int64] = np.flatnonzero(chosen).astype(np.int64)
        return table.filter(flag_column(chosen)), rows + first

    def _matched(self, events: pa.Table) -> Mask:
        mask = np.zeros(events.num_rows, np.bool_)
        if not events.num_rows or self._matcher is None or self._pattern is None:
            return mask
        found = self._matcher.match_texts(padded_texts(events["body"]))
        mask[np.diff(found.offsets) > 0] = True
        for number in found.malformed:  # the strict parser accepted them, so they must not be lost here
            event = parse_event(events["body"][int(number)].as_py(), max_bytes=self._runtime.settings.event_max_size)
            mask[number] = matches_leaves(self._pattern, flatten(event.document))
        return mask

    def _by_outcome(self, events: pa.Table, batch_id: str, past: Past) -> Mask:
        """Return the events to take by the outcome of their deliveries to the part's target."""
        if not events.num_rows:
            return np.zeros(0, np.bool_)
        rule, target = self._part.rule, self._part.target
        names = zip(events["source"].to_pylist(), events["event_id"].to_pylist(), strict=True)
        ids = [delivery_id(self._replay.bus, source, event_id, rule, target) for source, event_id in names]
        outcomes = past.outcomes(batch_id)
        found = [outcomes.get(each) for each in ids]
        chosen = np.ones(events.num_rows, np.bool_)
        if self._replay.skip_delivered:
            chosen &= [each is None or each.outcome != DELIVERED for each in found]
        if self._sql is not None:
            chosen &= rows_where(self._as_asked(events, batch_id, found), self._sql)
        return chosen

    def _as_asked(self, events: pa.Table, batch_id: str, found: Sequence[PastOutcome | None]) -> pa.Table:
        """Return the events as the table of the SQL condition, with the outcomes of their deliveries."""
        count = events.num_rows
        shared = {"rule": self._part.rule, "target": self._part.target, "bus": self._replay.bus, "batch_id": batch_id}
        asked = ("outcome", "reason", "code", "attempts", "delivered_at")
        columns: dict[str, Any] = {name: [text] * count for name, text in shared.items()}
        columns |= {name: [None if each is None else getattr(each, name) for each in found] for name in asked}
        taken = {name: events[name] for name in COLUMNS.names if name in events.column_names}
        made = {name: pa.array(values, COLUMNS.field(name).type) for name, values in columns.items()}
        every = {**taken, "event": events["body"], **made}
        return pa.table([every[name] for name in COLUMNS.names], schema=COLUMNS)


def _within(offsets: npt.NDArray[np.int64], spans: tuple[tuple[int, int], ...]) -> Mask:
    mask = np.zeros(len(offsets), np.bool_)
    for start, end in spans:
        mask |= (offsets >= start) & (offsets < end)
    return mask
