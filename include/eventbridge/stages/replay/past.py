"""What became of the deliveries of batches, followed through their retries, references and redrives."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow.compute as pc

from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.stages.settle.settlement import settlements

#: Batches whose delivered deliveries are kept: those of the files that are looked through one after the other.
_KEPT = 8


class Past:
    """Says which deliveries of one target of a rule were delivered, by the batch that landed their events."""

    def __init__(self, work: Runtime, rule: str, target: str) -> None:
        self._work = work
        self._rule, self._target = rule, target
        self._delivered: dict[str, frozenset[bytes]] = {}

    def delivered(self, batch_id: str) -> frozenset[bytes]:
        """Return the ids of the deliveries of a batch that were delivered, by itself or by who took them up later."""
        found = self._delivered.pop(batch_id, None)
        if found is None:
            found = frozenset(self._follow({batch_id}))
        self._delivered[batch_id] = found
        while len(self._delivered) > _KEPT:
            self._delivered.pop(next(iter(self._delivered)))
        return found

    def _follow(self, batches: set[str]) -> set[bytes]:
        delivered: set[bytes] = set()
        seen: set[str] = set()
        while waiting := sorted(batches - seen):
            for batch_id in waiting:
                seen.add(batch_id)
                delivered.update(self._settled(batch_id))
                batches.update(self._later(batch_id))
        return delivered

    def _settled(self, batch_id: str) -> Iterable[bytes]:
        for _, table in settlements(self._work, batch_id, ["delivery_id", "rule", "target", "verdict"]):
            wanted = {"rule": self._rule, "target": self._target, "verdict": "Delivered"}
            for name, value in wanted.items():
                table = table.filter(pc.equal(table[name], value))
            yield from table["delivery_id"].to_pylist()

    def _later(self, batch_id: str) -> set[str]:
        """Return the batches that took up what a batch parked, referred, or gave up."""
        ledger = self._work.ledger
        of_target = (row for row in ledger.parked_of(batch_id) if (row.rule, row.target) == (self._rule, self._target))
        found = {row.closed_by for row in of_target}
        found |= {row.closed_by for row in ledger.references_of(batch_id) if row.rule == self._rule}
        letters = [file.path for file in ledger.files(batch_id, "dead_letter") if file.path is not None]
        if letters:
            redriven = ledger.redriven()
            found |= {taken.batch_id for path in letters for taken in redriven.get(path, [])}
        return {each for each in found if each is not None}
