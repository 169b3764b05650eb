"""Ordered targets in the ledger: leases of their shards, what is open of them, at what a rule is on hold."""

from __future__ import annotations

from datetime import datetime

from eventbridge.decision.ordering import BEHIND_ITS_KEY
from eventbridge.ledger.columns import microseconds
from eventbridge.ledger.database import Database
from eventbridge.ledger.pending import to_pending
from eventbridge.ledger.statements import order as statements
from eventbridge.ledger.statements.due import due_of_ordered
from eventbridge.model.pending import PendingDeliveries


class Order(Database):
    """The part of the ledger about order."""

    def take_lease(self, rule: str, target: str, shard: int, holder: str, until: datetime) -> bool:
        """Take the lease of a shard until then, or make one's own longer; False while somebody else has it.

        A holder's name is given once and never to another: one that has lost the lease cannot take it for its own.
        """
        now = self.now()
        of = {"of_rule": rule, "of_target": target, "of_shard": shard, "holder": holder, "until": until, "now": now}
        first = {"rule": rule, "target": target, "shard": shard, "lease_holder": holder, "lease_until": until}
        with self._writing() as connection:
            if connection.execute(statements.TAKE_LEASE, of).rowcount == 1:
                return True
            return connection.execute(statements.FIRST_LEASE, first).rowcount == 1

    def end_lease(self, rule: str, target: str, shard: int, holder: str) -> bool:
        """End one's own lease now: nothing of it is in flight any more. False if it is not one's own."""
        of = {"of_rule": rule, "of_target": target, "of_shard": shard, "holder": holder, "now": self.now()}
        with self._writing() as connection:
            return connection.execute(statements.END_LEASE, of).rowcount == 1

    def leases(self, rule: str, target: str) -> dict[int, str]:
        """Return who has the lease of a target's shards now; a shard that nobody has is absent."""
        of = {"of_rule": rule, "of_target": target, "now": self.now()}
        with self._reading() as connection:
            return {row.shard: row.lease_holder for row in connection.execute(statements.LEASES, of)}

    def open_of_target(self, rule: str, target: str, shard: int | None = None) -> list[PendingDeliveries]:
        """Return the pending rows of an ordered target, or of one shard, that are not closed: also those taken."""
        of = {"of_rule": rule, "of_target": target} | ({} if shard is None else {"of_shard": shard})
        statement = statements.OPEN_OF_TARGET if shard is None else statements.OPEN_OF_SHARD
        with self._reading() as connection:
            return [to_pending(row) for row in connection.execute(statement, of)]

    def due_of_ordered(self, now: datetime, rule: str, target: str, limit_rows: int) -> list[PendingDeliveries]:
        """Return at most `limit_rows` due rows of an ordered target, of shards that no batch has taken rows of.

        What was tried comes first, then what has waited longest.
        """
        of = {"of_rule": rule, "of_target": target}
        with self._reading() as connection:
            taken = set(connection.execute(statements.SHARDS_TAKEN, of).scalars())
            rows = connection.execute(due_of_ordered(limit_rows), of | {"now": now})
            return [row for row in map(to_pending, rows) if row.order_shard not in taken]

    def shards_behind(self, rule: str, target: str) -> list[int]:
        """Return the shards of a target in which everything waits behind its key, and so for nothing."""
        of = {"of_rule": rule, "of_target": target, "because": BEHIND_ITS_KEY}
        with self._reading() as connection:
            return sorted(connection.execute(statements.SHARDS_ON_HOLD, of).scalars())

    def release_shard(self, rule: str, target: str, shard: int) -> int:
        """Make due what of a shard waits behind its keys, and return how many rows; their age stood still."""
        now = self.now()
        of = {"of_rule": rule, "of_target": target, "of_shard": shard, "because": BEHIND_ITS_KEY, "now": now}
        with self._writing() as connection:
            return connection.execute(statements.RELEASE_SHARD, of | {"microseconds": microseconds(now)}).rowcount

    def on_hold_of_rule(self, rule: str) -> list[PendingDeliveries]:
        """Return the open rows of a rule's ordered targets that are on hold, or were and are marked, in their order."""
        with self._reading() as connection:
            return [to_pending(row) for row in connection.execute(statements.ON_HOLD_OF_RULE, {"of_rule": rule})]

    def mark_on_hold(self, pending_id: int, held: str, instead: str) -> bool:
        """Make a row due on hold for one reason, and note another at it; False if it is not on hold for that."""
        of = {"of_row": pending_id, "because": held, "instead": instead, "now": self.now()}
        with self._writing() as connection:
            return connection.execute(statements.MARK_ON_HOLD, of).rowcount == 1
