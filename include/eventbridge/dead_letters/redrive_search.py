"""Searches the dead letters for a redrive, and gives the reason for each one that it does not take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from eventbridge.dead_letters.reader import Chosen, DeadLetter
from eventbridge.dead_letters.selection import Selection
from eventbridge.model import rowset
from eventbridge.model.redelivery import Redrive, Redriven
from eventbridge.policy.batch_size import HELD_BYTES, HELD_EVENTS
from eventbridge.policy.chunking import PoolSlots
from eventbridge.policy.hold_reason import delivery_hold_reason
from eventbridge.runtime.dead_letter_files import Damaged, dead_letter_files, read_unless_damaged
from eventbridge.runtime.runtime import Runtime

#: A batch under a rate holds what the rate allows in so many seconds, or in half of a push's budget, which must do for
#: it: its pushes take a token for each dead letter. The next one waits for as long.
_RATE_WINDOW_SECONDS = 10.0
_READ_AT_ONCE = 1_000

NO_DELIVERY = "the event never became a delivery"
NO_REQUEST = "there is no request to send again; --retransform makes one"
REDRIVEN_BEFORE = "redriven before; --again takes it again"
OTHER_BUS = "the rule is on another bus today"


class Search:
    """Searches the dead letters for a redrive, those of the oldest batch first.

    An unreadable file is skipped and added to `damaged`; the dead letters of all others are taken.
    """

    def __init__(self, runtime: Runtime, redrive: Redrive, pools: Mapping[str, PoolSlots]) -> None:
        self._runtime = runtime
        self._redrive = redrive
        self._pools = pools
        self._selection = Selection.from_json(redrive.selection)
        self._redriven = runtime.ledger.redriven()
        self._statuses = runtime.ledger.target_statuses()
        self._overrides = runtime.ledger.overrides()
        self.rules = runtime.rule_set()
        self.damaged: Damaged = {}

    def letters(self) -> Iterator[tuple[DeadLetter, str]]:
        """Yield each selected dead letter that this redrive has not taken, with the reason not to take it, or ""."""
        files = dead_letter_files(self._runtime, before=self._redrive.started_at)
        chosen = Chosen(self._runtime, self._selection, files, self.damaged)
        for file in reversed(files):
            mine, others = self._taken_of(file)
            for row, record in chosen.records_of(file):
                if row not in mine:
                    before = row in others and not self._redrive.again
                    yield DeadLetter(file, row, record), REDRIVEN_BEFORE if before else self._obstacle(record)

    def first_dead_letters(self) -> list[DeadLetter]:
        """Return the dead letters of the next batch with all columns: the first one's group, up to a batch's limit."""
        while True:
            before = len(self.damaged)
            kept = self._first_readable()
            if kept or len(self.damaged) == before:  # else what was to go first cannot be read, and something else may
                return kept

    def _first_readable(self) -> list[DeadLetter]:
        settings = self._runtime.settings
        most = min(
            settings.batch_max_events,
            HELD_EVENTS,
            self._runtime.chunk_sizes.small.deliveries * settings.batch_max_chunks,
        )
        if self._redrive.rate is not None:
            seconds = min(_RATE_WINDOW_SECONDS, settings.push_timeout / 2)
            most = max(1, min(most, int(self._redrive.rate * seconds)))
        kept: list[DeadLetter] = []
        size = 0
        for letter in self._whole(self._alike()):
            kept.append(letter)
            size += len(letter.record["event"]) + len(letter.record["request"] or b"")
            if len(kept) >= most or size >= min(settings.batch_max_size, HELD_BYTES):
                break
        return kept

    def taken(self, batch_id: str, letters: Sequence[DeadLetter]) -> list[Redriven]:
        """Return the rows that a batch takes of each file, under the file's next turn."""
        rows: dict[str, list[int]] = {}
        for letter in letters:
            rows.setdefault(letter.file, []).append(letter.row)
        return [
            Redriven(
                file,
                len(self._redriven.get(file, ())),
                self._redrive.redrive_id,
                batch_id,
                rowset.encode(numbers),
                len(numbers),
            )
            for file, numbers in sorted(rows.items())
        ]

    def _alike(self) -> Iterator[DeadLetter]:
        group: tuple[str, ...] | None = None
        for letter, why_not in self.letters():
            if not why_not:
                group = group or self._group(letter)
                if group == self._group(letter):
                    yield letter

    def _group(self, letter: DeadLetter) -> tuple[str, ...]:
        record = letter.record
        if self._redrive.retransform:
            return (record["rule"], record["target"])
        return (self.rules.rules[record["rule"]].runner,)

    def _whole(self, letters: Iterator[DeadLetter]) -> Iterator[DeadLetter]:
        waiting: list[DeadLetter] = []
        for letter in letters:
            if waiting and (waiting[0].file != letter.file or len(waiting) == _READ_AT_ONCE):
                yield from self._read_whole(waiting)
                waiting = []
            waiting.append(letter)
        if waiting:
            yield from self._read_whole(waiting)

    def _read_whole(self, letters: Sequence[DeadLetter]) -> Iterator[DeadLetter]:
        file, rows = letters[0].file, [letter.row for letter in letters]
        table = self._read(file, rows)
        if table is not None:
            yield from (DeadLetter(file, *each) for each in zip(rows, table.to_pylist(), strict=True))

    def _read(self, file: str, rows: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table | None:
        return read_unless_damaged(self._runtime.store, file, rowset.encode(rows), columns, damaged=self.damaged)

    def _taken_of(self, file: str) -> tuple[set[int], set[int]]:
        mine: set[int] = set()
        others: set[int] = set()
        for each in self._redriven.get(file, ()):
            (mine if each.redrive_id == self._redrive.redrive_id else others).update(rowset.decode(each.rows))
        return mine, others

    def _obstacle(self, record: Mapping[str, object]) -> str:
        if record["delivery_id"] is None:
            return NO_DELIVERY
        rule, target = str(record["rule"]), str(record["target"])
        held = delivery_hold_reason(self.rules, self._statuses, self._pools, self._overrides, rule, target)
        if held:
            return held
        if self._redrive.retransform:
            return OTHER_BUS if self.rules.rules[rule].bus != record["bus"] else ""
        return NO_REQUEST if record["reason"] in ("transform_failed", "route_failed") else ""
