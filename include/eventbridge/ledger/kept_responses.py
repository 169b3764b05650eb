"""Responses of the API in the ledger, by idempotency key."""

from __future__ import annotations

from datetime import datetime

from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import kept_responses as statements
from eventbridge.model.api import KeptResponse


class KeptResponses(Database):
    """The part of the ledger about calls that may be repeated."""

    def kept_response(self, caller: str, key: str, since: datetime) -> KeptResponse | None:
        """Return the response to a caller's key if it was made at or after the aware time `since`, else None."""
        of = {"of_caller": caller, "of_key": key, "since": since}
        with self._reading() as connection:
            row = connection.execute(statements.KEPT_RESPONSE, of).one_or_none()
            return None if row is None else KeptResponse(**row._mapping)

    def keep_response(self, response: KeptResponse, before: datetime) -> bool:
        """Store a response and delete those made before the aware time `before`; return False if its key has one."""
        with self._writing() as connection:
            connection.execute(statements.DROP_RESPONSES, {"before": before})
            return connection.execute(statements.KEEP_RESPONSE, vars(response)).rowcount == 1
