"""Routes one slice of a buffer file, in this process or in a Spark worker.

This module must not import the ledger or Spark, because Spark workers import it and must start fast.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.event.fingerprints import fingerprints
from eventbridge.event.ids import Fingerprint
from eventbridge.model import rowset
from eventbridge.model.file_detail import RoutedPiece, RoutedSlice
from eventbridge.routing.block import SliceOrigin, block_of, runs_of
from eventbridge.routing.events import MatchedRows, SliceEvents, match_rows
from eventbridge.routing.job import RouteJob, Slice, SliceResult
from eventbridge.routing.pieces import UNORDERED, PieceLimits, pieces_of
from eventbridge.routing.program import Route, RouteProgram, route_program
from eventbridge.rules import RuleSet
from eventbridge.store import layout
from eventbridge.store.parquet import TableWriter
from eventbridge.store.protocol import Store
from eventbridge.transform.kernel.render import Deliveries, Events

#: The number of rows per row group of a delivery file. A row group is the least that a push can read.
ROW_GROUP_ROWS: Final = 4_000

#: The maximum number of deliveries to compute and render at a time, unless a single target has more.
_RUN: Final = 100_000


def route_slice(store: Store, rule_set: RuleSet, job: RouteJob, piece: Slice) -> SliceResult:
    """Match and transform the valid events of a slice, and write one delivery file.

    The function may be called repeatedly. Every call writes a file with a unique name, so a repeated call leaves an
    unused file and duplicates nothing. A transform that fails leaves a row with its `failure` and no payload. For
    budgeted rules and rules that are routed later, only the candidate events of their patterns are recorded. Raises
    StoreError if a file cannot be read or written. EventError cannot happen, because buffer has parsed the same bytes.
    """
    events = SliceEvents.read(store, piece.file, piece.row_from, piece.row_to, job.event_max_size)
    program = route_program(job.rule_set, rule_set, job.bus)
    cleared = program.matcher.clears
    matched, handed_back = match_rows(program, events)
    cleared = program.matcher.clears - cleared
    candidates_only = program.budgeted | program.numbers_of(job.later)
    candidate_events = _candidate_events(candidates_only, events, matched)
    matched = matched.without(program.numbers_of(job.later).values())
    account = Account(PieceLimits(job.piece_max_deliveries, job.piece_max_bytes))
    path = None
    if matched.counts[program.rule_of_route].any():
        part = re.sub(r"[^\w.-]", "_", piece.slice_id, flags=re.ASCII) + f"-{uuid.uuid4().hex}"
        path = layout.deliveries(job.planned_at, job.batch_id, job.attempt, part)
        writer = TableWriter(store, path, ROW_GROUP_ROWS)
        for table in delivery_tables(
            program, events, matched, SliceOrigin(job.bus, job.replay_id, piece.file), account
        ):
            writer.write(table)
        writer.close()
    detail = RoutedSlice(
        file=piece.file,
        row_from=piece.row_from,
        row_to=piece.row_to,
        rows_in=len(events),
        matched=account.matched,
        failed=account.failed,
        failed_rows=rowset.encode(account.failed_rows),
        pieces=tuple(account.pieces),
        reference_matched=handed_back,
        reference_rendered=account.reference_rendered,
        clears=cleared,
        candidate_events=candidate_events,
    )
    return SliceResult(piece.slice_id, path, account.rows, detail)


def _candidate_events(rules: Mapping[str, int], events: SliceEvents, matched: MatchedRows) -> dict[str, str]:
    found = {name: events.rows[matched.rows_of(rule)].tolist() for name, rule in rules.items()}
    return {name: rowset.encode(rows) for name, rows in found.items() if rows}


@dataclass
class Account:
    """Counts the deliveries written so far, for the record of the slice; see `RoutedSlice`."""

    limits: PieceLimits
    rows: int = 0
    matched: dict[str, Fingerprint] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    failed_rows: list[int] = field(default_factory=list)
    pieces: list[RoutedPiece] = field(default_factory=list)
    reference_rendered: int = 0

    def add(
        self,
        program: RouteProgram,
        deliveries: Deliveries,
        sizes: npt.NDArray[np.int64],
        shards: npt.NDArray[np.int16],
        failed: npt.NDArray[np.bool_],
        waits: npt.NDArray[np.int64],
    ) -> None:
        """Add all deliveries of one or more targets, which are the next rows of the file; for `waits`, see `Block`."""
        starts, counts = runs_of(deliveries.targets)
        targets = deliveries.targets[starts]
        found = fingerprints(deliveries.ids, counts)
        totals = np.add.reduceat(sizes, starts)
        failures = np.add.reduceat(failed.astype(np.int64), starts)
        # Most of thousands of rules have only a few rows each, so everything but this loop is vectorised over all
        # targets.
        columns = (targets, starts, counts, totals, failures)
        for (target, start, count, size, fails), each in zip(
            zip(*[column.tolist() for column in columns], strict=True), found, strict=True
        ):
            route: Route = program.routes[target]
            self.matched[route.name] = each
            first = self.rows + start
            if shards[start] != UNORDERED:
                span = slice(start, start + count)
                self._add_shards(route, first, sizes[span], shards[span], failed[span], waits[span])
            elif not fails and route.waiting is None and self.limits.is_one_piece(count, size):
                self.pieces.append(RoutedPiece(*route.head, rowset.run(first, first + count - 1), count, size))
            else:
                span = slice(start, start + count)
                self._add_parts(route, first, sizes[span], failed[span], waits[span])
        self.rows += len(sizes)

    def _add_failed(self, route: Route, first: int, failed: npt.NDArray[np.bool_]) -> None:
        if failed.any():
            self.failed[route.name] = int(failed.sum())
            self.failed_rows += (np.flatnonzero(failed) + first).tolist()

    def _add_shards(
        self,
        route: Route,
        first: int,
        sizes: npt.NDArray[np.int64],
        shards: npt.NDArray[np.int16],
        failed: npt.NDArray[np.bool_],
        waits: npt.NDArray[np.int64],
    ) -> None:
        """Add the deliveries of an ordered target, with separate pieces for each shard."""
        self._add_failed(route, first, failed)
        for shard in np.unique(shards[~failed]).tolist():
            chosen = np.flatnonzero((shards == shard) & ~failed)
            self.pieces += pieces_of(route.head, chosen + first, sizes[chosen], waits[chosen], self.limits, shard)

    def _add_parts(
        self,
        route: Route,
        first: int,
        sizes: npt.NDArray[np.int64],
        failed: npt.NDArray[np.bool_],
        waits: npt.NDArray[np.int64],
    ) -> None:
        self._add_failed(route, first, failed)
        rows = np.flatnonzero(~failed)
        self.pieces += pieces_of(route.head, rows + first, sizes[rows], waits[rows], self.limits)


def delivery_tables(
    program: RouteProgram, events: SliceEvents, matched: MatchedRows, origin: SliceOrigin, account: Account
) -> Iterator[pa.Table]:
    """Yield the rows of all deliveries, sorted by pool, rule, target and offset, and add them to the account.

    A transform that fails leaves a row with its `failure` and no payload.
    """
    sources, event_ids = events.names
    texts, ids = Events(events.texts, events.arrived_at), program.ids_of(origin.replay_id)
    for numbers, targets in deliveries_of(matched, program.rule_of_route):
        deliveries = Deliveries(numbers, targets, ids.compute(sources, event_ids, numbers, targets))
        sizes, waits = np.zeros((2, len(numbers)), np.int64)
        failed = np.zeros(len(numbers), np.bool_)
        shards = np.full(len(numbers), UNORDERED, np.int16)
        for payloads in program.renderers.render(texts, deliveries):
            block = block_of(program, events, deliveries, payloads, origin)
            sizes[payloads.first : payloads.last] = block.sizes
            shards[payloads.first : payloads.last] = block.shards
            failed[payloads.first : payloads.last] = block.failed
            waits[payloads.first : payloads.last] = block.waits
            account.reference_rendered += block.handed_back
            yield block.table
        account.add(program, deliveries, sizes, shards, failed, waits)


def deliveries_of(
    matched: MatchedRows, rule_of_route: npt.NDArray[np.int64]
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield the events and targets of all deliveries, sorted by target, in runs that never split a target's
    deliveries."""
    counts = matched.counts[rule_of_route]
    ends = counts.cumsum()
    first, done = 0, 0
    while first < len(counts):
        last = max(int(ends.searchsorted(done + _RUN, side="right")), first + 1)
        run_counts = counts[first:last]
        total = int(ends[last - 1]) - done
        if total:
            shift = matched.starts[rule_of_route[first:last]] - (ends[first:last] - done - run_counts)
            numbers = matched.events[np.arange(total) + shift.repeat(run_counts)]
            yield numbers, np.arange(first, last).repeat(run_counts)
        first, done = last, done + total
