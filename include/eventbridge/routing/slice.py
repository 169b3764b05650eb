"""Routes one slice of a buffer file, in this process or in a Spark worker.

This module must not import the ledger or Spark: Spark workers import it and must start fast.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import Final

from eventbridge.model import rowset
from eventbridge.model.file_detail import RoutedSlice
from eventbridge.routing.block import SliceOrigin
from eventbridge.routing.delivery_file import Account, delivery_tables
from eventbridge.routing.events import MatchedRows, SliceEvents, match_rows
from eventbridge.routing.job import RouteJob, Slice, SliceResult
from eventbridge.routing.pieces import PieceLimits
from eventbridge.routing.program import route_program
from eventbridge.rules import RuleSet
from eventbridge.store import layout
from eventbridge.store.parquet import TableWriter
from eventbridge.store.protocol import Store

#: Rows per row group of a delivery file, the minimum that a push reads.
ROW_GROUP_ROWS: Final = 4_000


def route_slice(store: Store, rule_set: RuleSet, job: RouteJob, piece: Slice) -> SliceResult:
    """Match and transform the valid events of a slice and write one delivery file; safe to run any number of times.

    Every call writes a file with a unique name, so a repeated call leaves a lost file, never a duplicate.
    A transform that fails leaves a row with its `failure` and no payload. Of budgeted rules, and of those that are
    routed later, only the candidate events of their patterns are noted.
    Raises StoreError; EventError cannot happen, as buffer parsed the same bytes.
    """
    events = SliceEvents.read(store, piece.file, piece.row_from, piece.row_to, job.event_max_size)
    program = route_program(job.rule_set, rule_set, job.bus)
    cleared = program.matcher.clears
    matched, handed_back = match_rows(program, events)
    cleared = program.matcher.clears - cleared
    apart = program.budgeted | program.numbers_of(job.later)
    candidate_events = _candidate_events(apart, events, matched)
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
    found = {name: events.rows[matched.of(rule)].tolist() for name, rule in rules.items()}
    return {name: rowset.encode(rows) for name, rows in found.items() if rows}
