"""Tokens of the API in the ledger, by their hashes."""

from __future__ import annotations

from typing import Any

from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import api_tokens as statements
from eventbridge.model.api_token import ApiToken


class ApiTokens(Database):
    """The part of the ledger about who may use the API."""

    def api_tokens(self) -> list[ApiToken]:
        """Return every token by its name, revoked and expired ones included."""
        with self._reading() as connection:
            return [_token(row) for row in connection.execute(statements.API_TOKENS)]

    def api_token(self, token_hash: str) -> ApiToken | None:
        """Return the token of a hash, whether it is still valid or not; None if there is none."""
        with self._reading() as connection:
            row = connection.execute(statements.API_TOKEN, {"of_hash": token_hash}).one_or_none()
            return None if row is None else _token(row)

    def note_api_token(self, token: ApiToken, token_hash: str) -> bool:
        """Note a new token; False, and nothing changes, if there is or was one of its name."""
        row = {**vars(token), "scopes": list(token.scopes), "token_hash": token_hash}
        with self._writing() as connection:
            return connection.execute(statements.NOTE_API_TOKEN, row).rowcount == 1

    def revoke_api_token(self, name: str) -> bool:
        """Revoke a token by its name; False if there is none, or it is revoked already."""
        now = self.now()
        with self._writing() as connection:
            return connection.execute(statements.REVOKE_API_TOKEN, {"of_name": name, "now": now}).rowcount == 1


def _token(row: Any) -> ApiToken:
    return ApiToken(row.name, tuple(row.scopes), row.made_at, row.expires_at, row.revoked_at)
