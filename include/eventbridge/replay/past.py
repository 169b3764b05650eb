"""Finds the outcomes of past deliveries, followed through retries, deferred matches and redrives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.delivery.segments import segments
from eventbridge.errors import ReconciliationError
from eventbridge.pipeline.settle.settlement import settlements
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.parquet import read_table

DELIVERED = "delivered"
_PENDING = "pending"
#: Batches whose outcomes are cached: those of the files that are read one after the other.
_KEPT = 8


@dataclass(frozen=True)
class PastOutcome:
    """The outcome of a delivery: `delivered`, `dead_lettered` or `pending`, its reason and number of attempts.

    `code` is the HTTP status of its last attempt; None: it had none, or it was not read.
    """

    outcome: str
    reason: str | None
    attempts: int
    delivered_at: datetime | None
    code: int | None = None


class Past:
    """Returns the outcomes of the deliveries of one target of a rule, by the batch that landed their events."""

    def __init__(self, runtime: Runtime, rule: str, target: str, *, codes: bool = False) -> None:
        self._runtime = runtime
        self._rule, self._target = rule, target
        self._codes = codes
        self._known: dict[str, Mapping[bytes, PastOutcome]] = {}

    def outcomes(self, batch_id: str) -> Mapping[bytes, PastOutcome]:
        """Return the outcomes of a batch's deliveries by id: its own, or those of batches that took them up later."""
        found = self._known.pop(batch_id, None)
        if found is None:
            found = self._follow(batch_id)
        self._known[batch_id] = found
        while len(self._known) > _KEPT:
            self._known.pop(next(iter(self._known)))
        return found

    def _follow(self, batch_id: str) -> Mapping[bytes, PastOutcome]:
        found: dict[bytes, PastOutcome] = {}
        for each in self._generations(batch_id):  # in order of time: what came of it last counts, and a delivery most
            codes = self._codes_of(each) if self._codes else {}
            for row in self._settled(each):
                name, verdict = row["delivery_id"], row["verdict"]
                if name not in found or found[name].outcome != DELIVERED:
                    found[name] = PastOutcome(
                        outcome=verdict if verdict in (DELIVERED, "dead_lettered") else _PENDING,
                        reason=row["reason"],
                        attempts=row["attempts"],
                        delivered_at=row["settled_at"] if verdict == DELIVERED else None,
                        code=codes.get(name, found[name].code if name in found else None),
                    )
        return found

    def _generations(self, batch_id: str) -> list[str]:
        """Return a batch and all batches that took up deliveries of it, directly or not, in order of time."""
        seen: set[str] = set()
        waiting = {batch_id}
        while waiting:
            seen |= waiting
            waiting = {later for each in waiting for later in self._later(each)} - seen
        return sorted(seen)

    def _settled(self, batch_id: str) -> Iterator[dict[str, Any]]:
        if self._runtime.ledger.batch(batch_id).kept != "all":
            raise ReconciliationError(
                f"the outcomes of batch {batch_id} are past their retention: no replay can choose by them. "
                "Begin one without --sql and --skip-delivered, and cancel this one"
            )
        columns = ["delivery_id", "rule", "target", "verdict", "reason", "attempts", "settled_at"]
        for _, table in settlements(self._runtime, batch_id, columns):
            yield from self._of_target(table).to_pylist()

    def _codes_of(self, batch_id: str) -> dict[bytes, int | None]:
        found: dict[bytes, int | None] = {}
        for file in segments(self._runtime, batch_id):
            if file.path is not None:
                table = read_table(self._runtime.store, file.path, ["delivery_id", "rule", "target", "sent", "code"])
                rows = self._of_target(table).to_pylist()
                found |= {row["delivery_id"]: row["code"] for row in rows if row["sent"]}
        return found

    def _of_target(self, table: pa.Table) -> pa.Table:
        for name, value in {"rule": self._rule, "target": self._target}.items():
            table = table.filter(pc.equal(table[name], value))
        return table

    def _later(self, batch_id: str) -> set[str]:
        """Return the batches that took up the pending, deferred or dead-lettered deliveries of a batch."""
        ledger = self._runtime.ledger
        of_target = (row for row in ledger.pending_of(batch_id) if (row.rule, row.target) == (self._rule, self._target))
        found = {row.closed_by for row in of_target}
        found |= {row.closed_by for row in ledger.deferred_matches_of(batch_id) if row.rule == self._rule}
        letters = [file.path for file in ledger.files(batch_id, "dead_letter") if file.path is not None]
        if letters:
            redriven = ledger.redriven()
            found |= {taken.batch_id for path in letters for taken in redriven.get(path, [])}
        return {each for each in found if each is not None}
