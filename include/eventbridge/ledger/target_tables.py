"""The ledger's tables about targets: their status, recent attempts and rate limits; and the operational events that
are not yet published to the bus `eventbridge`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, PrimaryKeyConstraint, Table, Text, UniqueConstraint

from eventbridge.ledger.columns import JsonText, Message, RowId, UtcTime
from eventbridge.ledger.definitions import metadata, one_of
from eventbridge.model.rule_state import TargetState

target_status = Table(
    "target_status",
    metadata,
    Column("rule", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Message, nullable=False),
    Column("since", UtcTime, nullable=False),
    Column("until", UtcTime),
    Column("good", Integer, nullable=False, server_default="0"),
    Column("slow", Boolean, nullable=False, server_default="0"),
    Column("failing_since", UtcTime),
    Column("paused_until", UtcTime),
    PrimaryKeyConstraint("rule", "target"),
    one_of("state", TargetState),
)

#: Attempts of all pushes at each target within the breaker's window, by second since 1970, and how many of
#: them failed or had a slow response or none.
target_window = Table(
    "target_window",
    metadata,
    Column("rule", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("second", BigInteger, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("slow", BigInteger, nullable=False, server_default="0"),
    PrimaryKeyConstraint("rule", "target", "second"),
)

#: The remaining tokens of a target that has a rate, or whose rate is ramped.
target_tokens = Table(
    "target_tokens",
    metadata,
    Column("rule", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("count", Float, nullable=False),
    Column("at", UtcTime, nullable=False),
    PrimaryKeyConstraint("rule", "target"),
)

#: Operational events that are not published yet.
operational_event = Table(
    "operational_event",
    metadata,
    Column("operation_id", RowId, primary_key=True),
    Column("event_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("time", UtcTime, nullable=False),
    Column("data", JsonText, nullable=False),
    UniqueConstraint("event_id"),
    sqlite_autoincrement=True,
)
