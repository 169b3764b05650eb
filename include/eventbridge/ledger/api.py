"""What the ledger keeps for the API: tokens, repeatable responses, publish balances, and the actions of operators."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    Column,
    Float,
    Index,
    Insert,
    Integer,
    PrimaryKeyConstraint,
    Select,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
    delete,
    select,
    update,
)

from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import NUMBERED, JsonText, Message, RowId, UtcTime, insert_or_skip, metadata
from eventbridge.model.api import ApiToken, KeptResponse, OperatorAction
from eventbridge.policy.rate_limit import Balance, QuotaResult, grant

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
    **NUMBERED,
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

_OWN = publish_balance.c.owner == bindparam("of_owner")

#: The balance of an owner, locked until the transaction ends.
BALANCE = select(publish_balance.c.events, publish_balance.c.at).where(_OWN).with_for_update()

#: Adds the balance of an owner, unless it has one.
NOTE_BALANCE = insert_or_skip(publish_balance)

#: Changes the balance of an owner.
CHANGE_BALANCE = (
    update(publish_balance)
    .where(_OWN)
    .values(events=bindparam("left", type_=Float), at=bindparam("now", type_=UtcTime))
)

#: Records an action and returns its number.
RECORD_ACTION = Insert(operator_action).returning(operator_action.c.action_id)

#: Records the response status of an action.
RECORD_ACTION_STATUS = (
    update(operator_action)
    .where(operator_action.c.action_id == bindparam("of_action"))
    .values(status=bindparam("now_status"))
)

#: Deletes the actions requested before a time.
DROP_ACTIONS = delete(operator_action).where(operator_action.c.at < bindparam("before"))


def select_actions(limit: int, *, older: bool) -> Select[Any]:
    """Return the query for the newest actions; `older`: only those older than one."""
    query = select(operator_action).order_by(operator_action.c.action_id.desc()).limit(limit)
    return query.where(operator_action.c.action_id < bindparam("before_action")) if older else query


class Tokens(Aggregate):
    """Tokens of the API, by their hashes."""

    def all(self) -> list[ApiToken]:
        """Return all tokens in order of name, including revoked and expired ones."""
        with self._reading() as connection:
            return [_token(row) for row in connection.execute(API_TOKENS)]

    def get(self, token_hash: str) -> ApiToken | None:
        """Return the token with a hash, whether it is valid or not; None if there is none."""
        with self._reading() as connection:
            row = connection.execute(API_TOKEN, {"of_hash": token_hash}).one_or_none()
            return None if row is None else _token(row)

    def add(self, token: ApiToken, token_hash: str) -> bool:
        """Record a new token; return False, and change nothing, if its name is or was taken."""
        row = {**vars(token), "scopes": list(token.scopes), "token_hash": token_hash}
        with self._writing() as connection:
            return connection.execute(NOTE_API_TOKEN, row).rowcount == 1

    def revoke(self, name: str) -> bool:
        """Revoke a token by its name; return False if there is none, or it is already revoked."""
        now = self._now()
        with self._writing() as connection:
            return connection.execute(REVOKE_API_TOKEN, {"of_name": name, "now": now}).rowcount == 1


class Responses(Aggregate):
    """Responses to calls that may be repeated, by idempotency key."""

    def get(self, caller: str, key: str, since: datetime) -> KeptResponse | None:
        """Return the response to a caller's key if it was made at or after the aware time `since`, else None."""
        of = {"of_caller": caller, "of_key": key, "since": since}
        with self._reading() as connection:
            row = connection.execute(KEPT_RESPONSE, of).one_or_none()
            return None if row is None else KeptResponse(**row._mapping)

    def keep(self, response: KeptResponse, before: datetime) -> bool:
        """Store a response and delete those made before the aware time `before`; return False if its key has one."""
        with self._writing() as connection:
            connection.execute(DROP_RESPONSES, {"before": before})
            return connection.execute(KEEP_RESPONSE, vars(response)).rowcount == 1


class PublishBalances(Aggregate):
    """Publish balances of owners, shared by all servers of the API."""

    def grant(self, owner: str, per_second: float, events: int) -> QuotaResult:
        """Grant a call of so many events, and some in advance, to a server that publishes for an owner at this rate."""
        now = self._now()
        of = {"of_owner": owner}
        with self._writing() as connection:
            found = connection.execute(BALANCE, of).first()
            if found is None:
                full = {"owner": owner, "events": max(1.0, per_second), "at": now}
                connection.execute(NOTE_BALANCE, full)
                found = connection.execute(BALANCE, of).one()
            given = grant(Balance(*found), per_second, events, now)
            connection.execute(CHANGE_BALANCE, of | {"left": given.left.events, "now": given.left.at})
            return given


class Actions(Aggregate):
    """Actions that operators requested through the API and the page."""

    def record(self, by: str, call: str, asked: str) -> int:
        """Record a requested action before it is carried out, and return its number."""
        row = {"at": self._now(), "by": by, "call": call, "asked": asked, "status": None}
        with self._writing() as connection:
            return int(connection.execute(RECORD_ACTION, row).scalar_one())

    def record_status(self, action_id: int, status: int) -> None:
        """Record the response status of an action."""
        with self._writing() as connection:
            connection.execute(RECORD_ACTION_STATUS, {"of_action": action_id, "now_status": status})

    def find(self, limit: int, before: int | None = None) -> list[OperatorAction]:
        """Return at most `limit` actions, newest first; `before`: only those with a lower number."""
        values = {} if before is None else {"before_action": before}
        with self._reading() as connection:
            rows = connection.execute(select_actions(limit, older=before is not None), values)
            return [OperatorAction(**row._mapping) for row in rows]

    def drop(self, before: datetime) -> int:
        """Delete the actions requested before a time; return how many."""
        with self._writing() as connection:
            return connection.execute(DROP_ACTIONS, {"before": before}).rowcount


def _token(row: Any) -> ApiToken:
    return ApiToken(row.name, tuple(row.scopes), row.made_at, row.expires_at, row.revoked_at)
