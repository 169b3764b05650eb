"""Routes the events of an open batch, and decides how streaming mode handles each rule of the runner."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Sequence
from functools import partial

import pyarrow as pa

from eventbridge.delivery.outstanding import ITEM_COLUMNS, ReadPiece
from eventbridge.errors import UserError
from eventbridge.model import rowset
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Piece
from eventbridge.model.partition import FreshEvent
from eventbridge.pipeline.route.stage import job_of
from eventbridge.routing.in_memory import DeliveryRow, FreshDeliveries, route_in_memory
from eventbridge.routing.program import route_program
from eventbridge.rules import RuleSet, Target
from eventbridge.rules.types import TARGET_TYPES
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.schemas import DELIVERY

log = logging.getLogger(__name__)

#: The time for which the set of rules that are routed later is used before it is read again.
_JOB_SECONDS = 1.0


class StreamingRouting:
    """Routes the events of one batch.

    It yields no deliveries of rules whose pool is closed, and none for targets to which only the close sends.
    `has_left` is True once there are deliveries for such targets, or events for rules that are routed later.
    """

    def __init__(self, runtime: Runtime, batch: Batch, rules: RuleSet, on_hold: Collection[str]) -> None:
        self._runtime, self._batch, self._on_hold = runtime, batch, on_hold
        self._program = route_program(batch.rule_set, rules, batch.bus)
        self._job = job_of(runtime, batch)
        self._known_at = time.monotonic()
        self._left = targets_sent_at_close(rules)
        self.has_left = False

    def pieces(self, fresh: Sequence[FreshEvent]) -> Iterator[ReadPiece]:
        """Yield the deliveries that may be sent now. If routing fails, the events are left to the close."""
        now = time.monotonic()
        if now - self._known_at >= _JOB_SECONDS:
            self._job, self._known_at = job_of(self._runtime, self._batch), now
        job = self._job
        try:
            found = route_in_memory(self._program, fresh, self._runtime.clock(), job.event_max_size, job.later)
        except Exception:  # if one event makes the engine fail, the stages find that event
            log.exception(
                "runner %s: routing failed, so events are left to the close of their batch", self._batch.runner
            )
            return
        self.has_left = self.has_left or found.has_others
        for each in found.deliveries:
            if each.rule in self._on_hold:
                continue
            if (each.rule, each.target) in self._left:
                self.has_left = True
            else:
                yield _piece(each)


def _piece(fresh: FreshDeliveries) -> ReadPiece:
    rows, count = fresh.rows, len(fresh.rows)
    size = sum(len(row.payload or b"") for row in rows)
    piece = Piece("", rowset.run(0, count - 1), count, size, fresh.rule, fresh.target)
    return ReadPiece(piece, count, 0, partial(_table, rows), lambda: rows)


def _table(rows: Sequence[DeliveryRow]) -> pa.Table:
    columns = zip(ITEM_COLUMNS, zip(*rows, strict=True), strict=True)
    return pa.table({name: pa.array(values, DELIVERY.field(name).type) for name, values in columns})


def targets_sent_at_close(rules: RuleSet) -> frozenset[tuple[str, str]]:
    """Return the (rule, target) pairs to which only the close of a batch sends, because they are ordered or take spans.

    Targets of budgeted rules are not among them, because the close only makes the rules' matches deferred matches.
    """
    return frozenset(
        (rule.name, name)
        for rule in rules.rules.values()
        for name, target in rule.destinations.items()
        if target.ordered or takes_spans(target)
    )


def takes_spans(target: Target) -> bool:
    """Return whether a target takes spans, each of which is sent as a whole."""
    return TARGET_TYPES.get_in_force(target.type).takes_of(target) == "spans"


def refuse_unfit(rules: RuleSet, *, has_spark: bool) -> None:
    """Raise UserError if streaming mode cannot deliver rules of a runner because there is no Spark."""
    in_sql = [] if has_spark else [rule.name for rule in rules.rules.values() if rule.in_sql]
    if in_sql:
        raise UserError(
            "streaming mode without Airflow cannot deliver rules with `where` or SQL, which only Spark evaluates: "
            f"{', '.join(in_sql)}. Run `eventbridge deliver` without --streaming, or assign them to another runner"
        )
