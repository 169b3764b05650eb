"""The slots of pools in the ledger: those set by rule files, and those changed by an operator."""

from __future__ import annotations

from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import pools as statements
from eventbridge.model.chunk import AppliedSlots


class Pools(Database):
    """The part of the ledger about pools."""

    def applied_slots(self) -> dict[str, AppliedSlots]:
        """Return the slots set by rule files and those last seen, by pool."""
        with self._reading() as connection:
            rows = connection.execute(statements.APPLIED_SLOTS)
            return {row.pool: AppliedSlots(**row._mapping) for row in rows}

    def note_slots(self, pool: str, slots: int, seen: int) -> None:
        """Record that a rule file's slots were set for a pool, and how many the pool has; write only changes."""
        now = self.now()
        row = {"pool": pool, "slots": slots, "applied_at": now, "seen_slots": seen, "seen_at": now}
        with self._writing() as connection:
            if connection.execute(statements.NOTE_SLOTS, row).rowcount == 0:
                connection.execute(statements.CHANGE_SLOTS, {"of_pool": pool, "to": slots, "now": now})
                connection.execute(statements.SEE_SLOTS, {"of_pool": pool, "seen": seen, "now": now})
