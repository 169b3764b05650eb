"""What a push has to do for each target of its chunk: one run, those of an ordered target, or only rows to write."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import Any, NamedTuple

import pyarrow as pa

from eventbridge.breaker import pause_of
from eventbridge.delivery import DeadLettered, expired
from eventbridge.ledger.records import Batch, Chunk, Piece, Redrive, TargetStatus
from eventbridge.rule import Target as TargetRule
from eventbridge.stages.admission import admission
from eventbridge.stages.block_run import Block, BlockRun, blocks_of
from eventbridge.stages.items import ITEM_COLUMNS, Item, items_of
from eventbridge.stages.letter_copies import read_deliveries
from eventbridge.stages.ordered_chunk import ordered_runs
from eventbridge.stages.outcome_rows import OutcomeRows, unsent_row
from eventbridge.stages.outcomes import Shown
from eventbridge.stages.pace import Pace, Pause
from eventbridge.stages.put_off import put_off
from eventbridge.stages.run_breaker import RunBreaker
from eventbridge.stages.target_run import TargetRun
from eventbridge.stages.workplace import Workplace


class _Read(NamedTuple):
    """The deliveries of a piece, and the number of the first one's request: each of a chunk has its own."""

    piece: Piece
    rows: pa.Table
    first: int


@dataclass(frozen=True)
class ChunkRuns:
    """Makes the runs of a push of one chunk; what needs no run goes to `rows`."""

    work: Workplace
    batch: Batch
    chunk: Chunk
    until: datetime
    stop: threading.Event
    rows: OutcomeRows

    def of(self, done: Mapping[bytes, Shown]) -> list[TargetRun]:
        """Return the runs, not started, for what of the chunk is not `done`."""
        by_target: dict[tuple[str, str], list[_Read]] = defaultdict(list)
        first = 0
        for piece in self.chunk.pieces:
            rows = read_deliveries(self.work.store, piece.file, piece.rows, ITEM_COLUMNS)
            by_target[piece.rule, piece.target].append(_Read(piece, rows, first))
            first += rows.num_rows
        statuses = self.work.ledger.target_statuses()
        rules = self.work.rules_of(self.batch).rules
        runs: list[TargetRun] = []
        for (rule, target), found in by_target.items():
            spec = rules[rule].destinations.get(target) if rule in rules else None
            status = statuses.get((rule, target))
            of_target = self._of_target(rule, target, spec, status, found, done)
            pause = Pause()
            if (until := pause_of(status, self.work.clock())) is not None:
                pause.ask(until)
            for run in of_target:
                run.keep(pause, self._redrive_pace())
            runs += of_target
        return runs

    @cached_property
    def _redrive(self) -> Redrive | None:
        """Return the redrive that the batch is one of, if it has a rate."""
        taken = self.work.ledger.redriven_by(self.batch.batch_id) if self.batch.kind == "redrive" else []
        found = self.work.ledger.redrive(taken[0].redrive_id) if taken else None
        return found if found is not None and found.rate is not None else None

    def _redrive_pace(self) -> Pace | None:
        """Return what a run takes the redrive's tokens by; they lie beside those of targets, under no rule's name."""
        redrive = self._redrive
        if redrive is None:
            return None
        return Pace(partial(self.work.ledger.lease_tokens, "", redrive.redrive_id), redrive.rate)

    def _of_target(
        self,
        rule: str,
        target: str,
        spec: TargetRule | None,
        status: TargetStatus | None,
        found: Sequence[_Read],
        done: Mapping[bytes, Shown],
    ) -> Sequence[TargetRun]:
        blocks = self._blocks(spec, status, found) if not done else None
        if blocks is not None:
            assert spec is not None, "without it there are no blocks"
            return [BlockRun(rule, target, blocks, **self._options(rule, spec, status))] if blocks else []
        items = [item for each in found for item in items_of(each.rows, each.piece, done, each.first)]
        runs: list[TargetRun] = []
        if spec is not None and spec.ordered and (status is None or status.state != "disabled"):
            items = [item for item in items if item.request.order_key is None]
            runs += self._ordered(spec, [each.piece for each in found], done)
        if not items:
            return runs
        if spec is None:
            self._give_up(items, DeadLettered("RuleRemoved", f"no rule file names {rule}/{target} any more"))
            return runs
        admitted = admission(self.work, self.batch, status, self.until)
        if admitted == "none":
            self._give_up_expired(items, spec)  # the rest keeps no outcome: settlement parks it, or holds it
        elif ready := put_off(items, spec.deliver_between, self.work.clock(), self.rows):
            options = self._options(rule, spec, status, probing=admitted == "probes")
            runs.append(TargetRun(rule, target, ready, **options))
        return runs

    def _blocks(
        self, spec: TargetRule | None, status: TargetStatus | None, found: Iterable[_Read]
    ) -> list[Block] | None:
        """Return the deliveries of a target as blocks; None if each must be looked at, or sent, at its own time."""
        if spec is None or spec.ordered or spec.deliver_between is not None or spec.rate_per_second is not None:
            return None
        if self._redrive is not None:
            return None
        ramped = status is not None and status.until is not None and status.until > self.work.clock()
        if ramped or (status is not None and status.state != "ok"):
            return None
        blocks: list[Block] = []
        for each in found:
            of_piece = blocks_of(each.rows, each.piece, each.first)
            if of_piece is None:
                return None
            blocks += of_piece
        return blocks

    def _ordered(self, spec: TargetRule, pieces: Sequence[Piece], done: Mapping[bytes, Shown]) -> Sequence[TargetRun]:
        return ordered_runs(
            self.work,
            self.batch,
            self.chunk,
            pieces,
            done,
            spec,
            until=self.until,
            stop=self.stop,
            rows=self.rows,
        )

    def _options(
        self, rule: str, spec: TargetRule, status: TargetStatus | None, *, probing: bool = False
    ) -> dict[str, Any]:
        """Return what a run is made with beside its deliveries."""
        ramp_until = status.until if status is not None and not probing else None
        return {
            "open_target": lambda: self.work.open_target(rule, spec),
            "policy": spec.retry,
            "window": spec.deliver_between,
            "breaker": RunBreaker(
                rule,
                spec.name,
                probed=status if probing else None,
                disable_after_seconds=spec.disable_after_seconds,
            ),
            "pace": Pace(partial(self.work.ledger.lease_tokens, rule, spec.name), spec.rate_per_second, ramp_until),
            "until": self.until,
            "clock": self.work.clock,
            "stop": self.stop,
            "rows": self.rows,
            "patient": self.batch.kind != "normal",
        }

    def _give_up(self, items: Iterable[Item], verdict: DeadLettered) -> None:
        now = self.work.clock()
        self.rows.put_all(unsent_row(item, verdict, now) for item in items)

    def _give_up_expired(self, items: Iterable[Item], spec: TargetRule) -> None:
        now = self.work.clock()
        for item in items:
            verdict = expired(spec.retry, item.arrived_at, item.held_seconds, now)
            if verdict is not None:
                self._give_up([item], verdict)
