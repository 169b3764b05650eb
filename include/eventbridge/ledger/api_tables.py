"""The ledger's tables of the API."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Integer, PrimaryKeyConstraint, Table, Text, UniqueConstraint

from eventbridge.ledger.columns import JsonText, Message, RowId, UtcTime
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

#: Actions requested through the API and the page, in order; each is recorded before it is carried out.
operator_action = Table(
    "operator_action",
    metadata,
    Column("action_id", RowId, primary_key=True),
    Column("at", UtcTime, nullable=False),
    Column("by", Text, nullable=False),
    Column("call", Message, nullable=False),
    Column("asked", Message, nullable=False),
    Column("status", Integer),
    sqlite_autoincrement=True,
)

#: How many events owners with a bounded rate may publish at once; negative: a call took more than the balance held.
publish_balance = Table(
    "publish_balance",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("events", Float, nullable=False),
    Column("at", UtcTime, nullable=False),
)

#: Responses to calls with an idempotency key; `caller` is the name of a token.
kept_response = Table(
    "kept_response",
    metadata,
    Column("caller", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("call_hash", Text, nullable=False),
    Column("status", Integer, nullable=False),
    Column("made_at", UtcTime, nullable=False),
    Column("body", Text, nullable=False),
    PrimaryKeyConstraint("caller", "key"),
)
Index("ix_kept_response_made_at", kept_response.c.made_at)
