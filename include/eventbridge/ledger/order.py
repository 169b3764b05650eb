"""Ordered targets in the ledger: leases of their shards, their open rows, and the rows that keep a rule on hold."""

from __future__ import annotations

from datetime import datetime

from eventbridge.ledger.columns import microseconds
from eventbridge.ledger.database import Database
from eventbridge.ledger.pending import to_pending
from eventbridge.ledger.statements import order as statements
from eventbridge.ledger.statements.due import due_of_ordered
from eventbridge.model.pending import PendingDeliveries
from eventbridge.policy.ordering import BEHIND_ITS_KEY


class Order(Database):
    """The part of the ledger about ordered targets."""

    def take_lease(self, rule: str, target: str, shard: int, holder: str, until: datetime) -> bool:
        """Acquire the lease of a shard until a time, or extend it; return False while another holder has it.

        A holder's name is never reused, so a holder that lost the lease cannot mistake another's lease for its own.
        """
        now = self.now()
        of = {"of_rule": rule, "of_target": target, "of_shard": shard, "holder": holder, "until": until, "now": now}
        first = {"rule": rule, "target": target, "shard": shard, "lease_holder": holder, "lease_until": until}
        with self._writing() as connection:
            if connection.execute(statements.TAKE_LEASE, of).rowcount == 1:
                return True
            return connection.execute(statements.FIRST_LEASE, first).rowcount == 1

    def end_lease(self, rule: str, target: str, shard: int, holder: str) -> bool:
        """End the holder's lease now: none of its deliveries is in flight. Return False if another holder has it."""
        of = {"of_rule": rule, "of_target": target, "of_shard": shard, "holder": holder, "now": self.now()}
        with self._writing() as connection:
            return connection.execute(statements.END_LEASE, of).rowcount == 1

    def leases(self, rule: str, target: str) -> dict[int, str]:
        """Return the holders of the current leases of a target, by shard; a shard without a lease is absent."""
        of = {"of_rule": rule, "of_target": target, "now": self.now()}
        with self._reading() as connection:
            return {row.shard: row.lease_holder for row in connection.execute(statements.LEASES, of)}

    def open_of_target(self, rule: str, target: str, shard: int | None = None) -> list[PendingDeliveries]:
        """Return the pending rows of an ordered target, or of one shard, that are not closed, including taken ones."""
        of = {"of_rule": rule, "of_target": target} | ({} if shard is None else {"of_shard": shard})
        statement = statements.OPEN_OF_TARGET if shard is None else statements.OPEN_OF_SHARD
        with self._reading() as connection:
            return [to_pending(row) for row in connection.execute(statement, of)]

    def due_of_ordered(self, now: datetime, rule: str, target: str, limit_rows: int) -> list[PendingDeliveries]:
        """Return at most `limit_rows` due rows of an ordered target, from shards of which no batch has taken rows.

        Rows that were tried come first, then those that have waited longest.
        """
        of = {"of_rule": rule, "of_target": target}
        with self._reading() as connection:
            taken = set(connection.execute(statements.SHARDS_TAKEN, of).scalars())
            rows = connection.execute(due_of_ordered(limit_rows), of | {"now": now})
            return [row for row in map(to_pending, rows) if row.order_shard not in taken]

    def shards_behind(self, rule: str, target: str) -> list[int]:
        """Return the shards of a target in which every row waits behind its key, so that no row can unblock them."""
        of = {"of_rule": rule, "of_target": target, "because": BEHIND_ITS_KEY}
        with self._reading() as connection:
            return sorted(connection.execute(statements.SHARDS_ON_HOLD, of).scalars())

    def release_shard(self, rule: str, target: str, shard: int) -> int:
        """Make due the rows of a shard that wait behind their keys; return how many. The wait does not count as age."""
        now = self.now()
        of = {"of_rule": rule, "of_target": target, "of_shard": shard, "because": BEHIND_ITS_KEY, "now": now}
        with self._writing() as connection:
            return connection.execute(statements.RELEASE_SHARD, of | {"microseconds": microseconds(now)}).rowcount

    def on_hold_of_rule(self, rule: str) -> list[PendingDeliveries]:
        """Return the open rows of a rule's ordered targets that are on hold, or were and are still marked, in order."""
        with self._reading() as connection:
            return [to_pending(row) for row in connection.execute(statements.ON_HOLD_OF_RULE, {"of_rule": rule})]

    def mark_on_hold(self, pending_id: int, held: str, instead: str) -> bool:
        """Make due a row that is on hold for one reason, and record another; return False if it is not held for it."""
        of = {"of_row": pending_id, "because": held, "instead": instead, "now": self.now()}
        with self._writing() as connection:
            return connection.execute(statements.MARK_ON_HOLD, of).rowcount == 1
