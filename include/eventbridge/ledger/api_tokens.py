"""Tokens of the API in the ledger, by their hashes."""

from __future__ import annotations

from typing import Any

from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import api_tokens as statements
from eventbridge.model.api import ApiToken


class ApiTokens(Database):
    """The part of the ledger about tokens of the API."""

    def api_tokens(self) -> list[ApiToken]:
        """Return all tokens in order of name, including revoked and expired ones."""
        with self._reading() as connection:
            return [_token(row) for row in connection.execute(statements.API_TOKENS)]

    def api_token(self, token_hash: str) -> ApiToken | None:
        """Return the token with a hash, whether it is valid or not; None if there is none."""
        with self._reading() as connection:
            row = connection.execute(statements.API_TOKEN, {"of_hash": token_hash}).one_or_none()
            return None if row is None else _token(row)

    def note_api_token(self, token: ApiToken, token_hash: str) -> bool:
        """Record a new token; return False, and change nothing, if its name is or was taken."""
        row = {**vars(token), "scopes": list(token.scopes), "token_hash": token_hash}
        with self._writing() as connection:
            return connection.execute(statements.NOTE_API_TOKEN, row).rowcount == 1

    def revoke_api_token(self, name: str) -> bool:
        """Revoke a token by its name; return False if there is none, or it is already revoked."""
        now = self.now()
        with self._writing() as connection:
            return connection.execute(statements.REVOKE_API_TOKEN, {"of_name": name, "now": now}).rowcount == 1


def _token(row: Any) -> ApiToken:
    return ApiToken(row.name, tuple(row.scopes), row.made_at, row.expires_at, row.revoked_at)
