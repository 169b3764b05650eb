"""Keeps spans whole while they wait: each is pending as its own row, and is taken up as the same piece."""

from __future__ import annotations

from functools import cached_property, partial

import numpy as np

from eventbridge.model import row_vectors
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Piece
from eventbridge.pipeline.settle.waiting import WaitingRows
from eventbridge.rules import RuleSet
from eventbridge.rules.types import TARGET_TYPES
from eventbridge.runtime.runtime import Runtime


class SpanPending:
    """Finds the pieces of a batch's chunks whose target takes spans."""

    def __init__(self, runtime: Runtime, batch: Batch) -> None:
        self._runtime = runtime
        self._batch = batch
        self._takes_spans = partial(takes_spans, runtime.rules_of(batch))

    @cached_property
    def _pieces(self) -> list[tuple[int, int, Piece]]:
        return [
            (chunk.chunk_id, number, piece)
            for chunk in self._runtime.ledger.chunks(self._batch.batch_id)
            for number, piece in enumerate(chunk.pieces)
            if self._takes_spans(piece.rule, piece.target)
        ]

    def enter(self, waiting: WaitingRows) -> None:
        """Set the span of rows; a span is due when the last of its deliveries is."""
        of_targets = waiting.of_targets(self._takes_spans)
        if not of_targets.any():  # else the chunks of all deliveries are read for nothing
            return
        for chunk_id, number, piece in self._pieces:
            of_chunk = of_targets & (waiting.chunk_id == chunk_id) & (waiting.file == waiting.code(piece.file))
            at = np.flatnonzero(of_chunk)
            at = at[np.isin(waiting.row[at], row_vectors.decode(piece.rows))]
            if len(at):
                waiting.span[at] = number
                waiting.due_at[at] = waiting.due_at[at].max()


def takes_spans(rules: RuleSet, rule: str, target: str) -> bool:
    """Return whether a target or dead letter queue takes spans."""
    found = rules.rules.get(rule)
    spec = found.destinations.get(target) if found is not None else None
    return spec is not None and TARGET_TYPES.get(spec.type).takes(spec) == "spans"
