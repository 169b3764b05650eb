"""Stores what the API needs in the ledger: tokens, repeatable responses, publish balances, and operators' actions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import NUMBERED, JsonText, Message, RowId, UtcTime, insert_or_skip, metadata
from eventbridge.model.api import ApiToken, KeptResponse, OperatorAction
from eventbridge.policy.rate_limit import Balance, QuotaResult, grant

#: `token_hash` is the SHA-256 digest of the whole token, in hexadecimal. It needs no salt, because a token contains 256
#: random bits and cannot be guessed.
api_token = sa.Table(
    "api_token",
    metadata,
    sa.Column("token_hash", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("scopes", JsonText, nullable=False),
    sa.Column("made_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime),
    sa.Column("revoked_at", UtcTime),
    sa.UniqueConstraint("name"),
)

#: Actions requested through the API and the page, in order; each is recorded before it is carried out.
operator_action = sa.Table(
    "operator_action",
    metadata,
    sa.Column("action_id", RowId, primary_key=True),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("by", sa.Text, nullable=False),
    sa.Column("call", Message, nullable=False),
    sa.Column("asked", Message, nullable=False),
    sa.Column("status", sa.Integer),
    **NUMBERED,
)

#: The number of events that each owner with a limited rate may publish now; it is negative after a call that took more
#: than the balance.
publish_balance = sa.Table(
    "publish_balance",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("events", sa.Float, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
)

#: Responses to calls with an idempotency key; `caller` is the name of a token.
kept_response = sa.Table(
    "kept_response",
    metadata,
    sa.Column("caller", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("call_hash", sa.Text, nullable=False),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("made_at", UtcTime, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.PrimaryKeyConstraint("caller", "key"),
)
sa.Index("ix_kept_response_made_at", kept_response.c.made_at)

_TOKEN = (api_token.c.name, api_token.c.scopes, api_token.c.made_at, api_token.c.expires_at, api_token.c.revoked_at)

#: The token with a hash.
API_TOKEN = sa.select(*_TOKEN).where(api_token.c.token_hash == sa.bindparam("of_hash"))

#: Revokes a token, unless it is already revoked.
REVOKE_API_TOKEN = (
    sa.update(api_token)
    .where(api_token.c.name == sa.bindparam("of_name"), api_token.c.revoked_at.is_(None))
    .values(revoked_at=sa.bindparam("now"))
)

#: The response to a key, unless it is too old to count.
KEPT_RESPONSE = sa.select(kept_response).where(
    kept_response.c.caller == sa.bindparam("of_caller"),
    kept_response.c.key == sa.bindparam("of_key"),
    kept_response.c.made_at >= sa.bindparam("since"),
)

#: Deletes responses that are too old to count.
DROP_RESPONSES = sa.delete(kept_response).where(kept_response.c.made_at < sa.bindparam("before"))

_OWN = publish_balance.c.owner == sa.bindparam("of_owner")

#: The balance of an owner, locked until the transaction ends.
BALANCE = sa.select(publish_balance.c.events, publish_balance.c.at).where(_OWN).with_for_update()

#: Changes the balance of an owner.
CHANGE_BALANCE = (
    sa.update(publish_balance)
    .where(_OWN)
    .values(events=sa.bindparam("left", type_=sa.Float), at=sa.bindparam("now", type_=UtcTime))
)

#: Records an action and returns its number.
RECORD_ACTION = sa.Insert(operator_action).returning(operator_action.c.action_id)

#: Records the response status of an action.
RECORD_ACTION_STATUS = (
    sa.update(operator_action)
    .where(operator_action.c.action_id == sa.bindparam("of_action"))
    .values(status=sa.bindparam("now_status"))
)

#: Deletes the actions requested before the given time.
DROP_ACTIONS = sa.delete(operator_action).where(operator_action.c.at < sa.bindparam("before"))


def select_actions(limit: int, *, older: bool) -> sa.Select[Any]:
    """Return the query for the newest actions; if `older`, only for those before a given action."""
    query = sa.select(operator_action).order_by(operator_action.c.action_id.desc()).limit(limit)
    return query.where(operator_action.c.action_id < sa.bindparam("before_action")) if older else query


class Tokens(Aggregate):
    """Tokens of the API, by their hashes."""

    def all(self) -> list[ApiToken]:
        """Return all tokens in order of name, including revoked and expired ones."""
        return [_token(row) for row in self._rows(sa.select(*_TOKEN).order_by(api_token.c.name))]

    def get(self, token_hash: str) -> ApiToken | None:
        """Return the token with a hash, even if it is no longer valid; None if no token has it."""
        row = self._first(API_TOKEN, {"of_hash": token_hash})
        return None if row is None else _token(row)

    def add(self, token: ApiToken, token_hash: str) -> bool:
        """Record a new token; return False, and change nothing, if a token has or had its name."""
        row = {**vars(token), "scopes": list(token.scopes), "token_hash": token_hash}
        return self._change(insert_or_skip(api_token), row) == 1

    def revoke(self, name: str) -> bool:
        """Revoke a token by its name; return False if no token has the name, or if it is already revoked."""
        now = self._now()
        return self._change(REVOKE_API_TOKEN, {"of_name": name, "now": now}) == 1


class Responses(Aggregate):
    """Responses to calls that may be repeated, by idempotency key."""

    def get(self, caller: str, key: str, since: datetime) -> KeptResponse | None:
        """Return the response to a caller's key if it was made at or after the aware time `since`, else None."""
        of = {"of_caller": caller, "of_key": key, "since": since}
        row = self._first(KEPT_RESPONSE, of)
        return None if row is None else KeptResponse(**row._mapping)

    def keep(self, response: KeptResponse, before: datetime) -> bool:
        """Store a response and delete those made before the aware time `before`; return False if the key has one."""
        with self._writing() as connection:
            connection.execute(DROP_RESPONSES, {"before": before})
            return connection.execute(insert_or_skip(kept_response), vars(response)).rowcount == 1


class PublishBalances(Aggregate):
    """Publish balances of owners, shared by all servers of the API."""

    def grant(self, owner: str, per_second: float, events: int) -> QuotaResult:
        """Decide whether a server may publish a call's events for an owner with this rate.

        A grant includes some events in advance, so that not every call needs a transaction.
        """
        now = self._now()
        of = {"of_owner": owner}
        with self._writing() as connection:
            found = connection.execute(BALANCE, of).first()
            if found is None:
                full = {"owner": owner, "events": max(1.0, per_second), "at": now}
                connection.execute(insert_or_skip(publish_balance), full)
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
        self._change(RECORD_ACTION_STATUS, {"of_action": action_id, "now_status": status})

    def find(self, limit: int, before: int | None = None) -> list[OperatorAction]:
        """Return at most `limit` actions, newest first; if `before` is set, only actions with a lower number."""
        values = {} if before is None else {"before_action": before}
        rows = self._rows(select_actions(limit, older=before is not None), values)
        return [OperatorAction(**row._mapping) for row in rows]

    def drop(self, before: datetime) -> int:
        """Delete the actions requested before the given time; return how many."""
        return self._change(DROP_ACTIONS, {"before": before})


def _token(row: Any) -> ApiToken:
    return ApiToken(row.name, tuple(row.scopes), row.made_at, row.expires_at, row.revoked_at)
