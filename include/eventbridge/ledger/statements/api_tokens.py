"""Statements about tokens of the API."""

from __future__ import annotations

from sqlalchemy import bindparam, select, update

from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import api_token

_TOKEN = (api_token.c.name, api_token.c.scopes, api_token.c.made_at, api_token.c.expires_at, api_token.c.revoked_at)

#: Every token.
API_TOKENS = select(*_TOKEN).order_by(api_token.c.name)

#: The token of a hash.
API_TOKEN = select(*_TOKEN).where(api_token.c.token_hash == bindparam("of_hash"))

#: Adds a token, unless one has its name.
NOTE_API_TOKEN = insert_or_skip(api_token)

#: Revokes a token, unless it is.
REVOKE_API_TOKEN = (
    update(api_token)
    .where(api_token.c.name == bindparam("of_name"), api_token.c.revoked_at.is_(None))
    .values(revoked_at=bindparam("now"))
)
