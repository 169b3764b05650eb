"""Publish balances of owners in the ledger, shared by all servers of the API."""

from __future__ import annotations

from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import publish_balances as statements
from eventbridge.policy.rate_limit import Balance, QuotaResult, grant


class PublishBalances(Database):
    """The part of the ledger about publish balances."""

    def grant_publishing(self, owner: str, per_second: float, events: int) -> QuotaResult:
        """Grant a call of so many events, and some in advance, to a server that publishes for an owner at this rate."""
        now = self.now()
        of = {"of_owner": owner}
        with self._writing() as connection:
            found = connection.execute(statements.BALANCE, of).first()
            if found is None:
                full = {"owner": owner, "events": max(1.0, per_second), "at": now}
                connection.execute(statements.NOTE_BALANCE, full)
                found = connection.execute(statements.BALANCE, of).one()
            given = grant(Balance(*found), per_second, events, now)
            connection.execute(statements.CHANGE_BALANCE, of | {"left": given.left.events, "now": given.left.at})
            return given
