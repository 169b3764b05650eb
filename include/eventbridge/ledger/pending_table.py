"""The ledger's table of deliveries that wait for another batch, and the indexes by which they are found.

See `eventbridge.ledger.tables`.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Integer, Table, Text, UniqueConstraint, literal_column

from eventbridge.ledger.columns import JsonText, Message, RowId, UtcTime
from eventbridge.ledger.definitions import metadata, one_of, partial, word
from eventbridge.model.pending import PendingState

pending = Table(
    "pending",
    metadata,
    Column("pending_id", RowId, primary_key=True),
    Column("batch_id", Text, ForeignKey("batch.batch_id"), nullable=False),
    Column("settlement", Integer, nullable=False),
    Column("chunk_id", Integer, nullable=False),
    Column("runner", Text, nullable=False),
    Column("rule", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("lane", Text, nullable=False),
    # Values with which the row was added: part of its name, and, unlike due_at and held, never changed.
    Column("due_bucket", UtcTime, nullable=False),
    Column("hold_bucket", Text, nullable=False),
    Column("due_at", UtcTime, nullable=False),
    Column("held", Message, nullable=False),
    Column("on_hold_since", UtcTime),
    Column("on_hold_seconds", Float, nullable=False),
    Column("expires_at", UtcTime),
    Column("count", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("order_shard", Integer),
    Column("state", Text, nullable=False),
    Column("pending_at", UtcTime, nullable=False),
    Column("taken_by", Text, ForeignKey("batch.batch_id")),
    Column("closed_by", Text, ForeignKey("batch.batch_id")),
    Column("lineage", JsonText, nullable=False),
    Column("files", JsonText, nullable=False),
    Column("order_spans", JsonText, nullable=False, server_default="[]"),
    # For targets with `deliver_within`: when the youngest event was published, and when running late was reported.
    Column("published_at", UtcTime),
    Column("late_reported_at", UtcTime),
    one_of("state", PendingState),
    sqlite_autoincrement=True,
)
#: The name of a pending row: adding the same row again adds nothing.
_NAME = "batch_id settlement chunk_id rule target reason attempts lane due_bucket hold_bucket"
PENDING_NAME = tuple(pending.c[name] for name in _NAME.split())
pending.append_constraint(UniqueConstraint(*PENDING_NAME))
WAITING = pending.c.state != word("closed")
SCHEDULED = (pending.c.state == word("scheduled")) & pending.c.taken_by.is_(None)
ON_HOLD = (pending.c.state == word("on_hold")) & pending.c.taken_by.is_(None)
TAKEN = WAITING & pending.c.taken_by.is_not(None)
UNTAKEN = WAITING & pending.c.taken_by.is_(None)
UNTAKEN_IN_ORDER = UNTAKEN & pending.c.order_shard.is_not(None)
partial("ix_pending_scheduled", SCHEDULED, pending.c.due_at, pending.c.rule, pending.c.target)
partial("ix_pending_scheduled_of_target", SCHEDULED, pending.c.rule, pending.c.target, pending.c.due_at)
#: The kinds of due rows: the watcher lists the kinds and reads the first row of each (`statements.due`).
SCHEDULED_KIND = (pending.c.rule, pending.c.target, pending.c.held, pending.c.runner)
partial("ix_pending_scheduled_kind", SCHEDULED, *SCHEDULED_KIND, pending.c.due_at)
partial("ix_pending_scheduled_expiry", SCHEDULED, pending.c.rule, pending.c.target, pending.c.expires_at)
SCHEDULED_TRIED = SCHEDULED & pending.c.order_shard.is_not(None) & (pending.c.attempts > literal_column("0"))
SCHEDULED_UNTRIED = SCHEDULED & pending.c.order_shard.is_not(None) & (pending.c.attempts == literal_column("0"))
partial("ix_pending_scheduled_tried", SCHEDULED_TRIED, pending.c.rule, pending.c.target, pending.c.due_at)
partial("ix_pending_scheduled_untried", SCHEDULED_UNTRIED, pending.c.rule, pending.c.target, pending.c.due_at)
partial("ix_pending_on_hold", ON_HOLD, pending.c.rule, pending.c.target, pending.c.expires_at)
partial("ix_pending_waiting", WAITING, pending.c.rule, pending.c.target)
TIMED = UNTAKEN & pending.c.published_at.is_not(None)
UNREPORTED = TIMED & pending.c.late_reported_at.is_(None)
partial("ix_pending_timed", TIMED, pending.c.rule, pending.c.target, pending.c.published_at)
partial("ix_pending_unreported", UNREPORTED, pending.c.rule, pending.c.target, pending.c.published_at)
#: The kinds of waiting rows: a retry run lists the kinds and reads one row of each (`statements.kinds`).
PENDING_KIND = (pending.c.rule, pending.c.target, pending.c.state, pending.c.held, pending.c.runner)
partial("ix_pending_kind", UNTAKEN, *PENDING_KIND, pending.c.on_hold_since)
_IN_SHARD = (pending.c.rule, pending.c.target, pending.c.order_shard)
partial("ix_pending_shard", UNTAKEN_IN_ORDER, *_IN_SHARD, pending.c.state, pending.c.held)
# It has all columns of its condition; otherwise SQLite, which cannot know how few these are, reads the index of all
# waiting rows.
partial("ix_pending_taken", TAKEN, *_IN_SHARD, pending.c.state, pending.c.taken_by)
# Without its condition SQLite would look up `taken_by IS NULL` here and read all rows that were never taken.
partial("ix_pending_taken_by", pending.c.taken_by.is_not(None), pending.c.taken_by)
# Without it the foreign key makes the database read all pending rows for every batch that is removed.
partial("ix_pending_closed_by", pending.c.closed_by.is_not(None), pending.c.closed_by)
