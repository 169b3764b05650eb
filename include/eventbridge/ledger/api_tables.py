"""The ledger's tables of the API."""

from __future__ import annotations

from sqlalchemy import Column, Table, Text, UniqueConstraint

from eventbridge.ledger.columns import JsonText, UtcTime
from eventbridge.ledger.definitions import metadata

#: `token_hash` is SHA-256 of the whole token, in hexadecimal: a token holds 256 random bits, so nobody can guess it.
api_token = Table(
    "api_token",
    metadata,
    Column("token_hash", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("scopes", JsonText, nullable=False),
    Column("made_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime),
    Column("revoked_at", UtcTime),
    UniqueConstraint("name"),
)
