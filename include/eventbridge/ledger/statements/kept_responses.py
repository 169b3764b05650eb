"""Statements about responses of the API that are kept by an idempotency key."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, select

from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import kept_response

#: The response to a key, unless it is too old to count.
KEPT_RESPONSE = select(kept_response).where(
    kept_response.c.caller == bindparam("of_caller"),
    kept_response.c.key == bindparam("of_key"),
    kept_response.c.made_at >= bindparam("since"),
)

#: Keeps a response, unless its key has one.
KEEP_RESPONSE = insert_or_skip(kept_response)

#: Deletes responses that are too old to count.
DROP_RESPONSES = delete(kept_response).where(kept_response.c.made_at < bindparam("before"))
