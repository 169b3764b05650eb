"""The ledger's table of deliveries that wait for another batch, and the indexes by which they are found.

See `eventbridge.ledger.tables`.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Integer, Table, Text, UniqueConstraint, literal_column

from eventbridge.ledger.columns import JsonText, Message, RowId, UtcTime
from eventbridge.ledger.definitions import metadata, one_of, partial, word
from eventbridge.model.parked import ParkedState

parked = Table(
    "parked",
    metadata,
    Column("parked_id", RowId, primary_key=True),
    Column("batch_id", Text, ForeignKey("batch.batch_id"), nullable=False),
    Column("settlement", Integer, nullable=False),
    Column("chunk_id", Integer, nullable=False),
    Column("runner", Text, nullable=False),
    Column("rule", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("lane", Text, nullable=False),
    # What the row was parked with: part of its name, and unlike due_at and held never changed.
    Column("due_bucket", UtcTime, nullable=False),
    Column("held_bucket", Text, nullable=False),
    Column("due_at", UtcTime, nullable=False),
    Column("held", Message, nullable=False),
    Column("held_since", UtcTime),
    Column("held_seconds", Float, nullable=False),
    Column("expires_at", UtcTime),
    Column("count", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("order_shard", Integer),
    Column("state", Text, nullable=False),
    Column("parked_at", UtcTime, nullable=False),
    Column("taken_by", Text, ForeignKey("batch.batch_id")),
    Column("closed_by", Text, ForeignKey("batch.batch_id")),
    Column("lineage", JsonText, nullable=False),
    Column("files", JsonText, nullable=False),
    Column("order_spans", JsonText, nullable=False, server_default="[]"),
    # Of targets with `deliver_within`: when the youngest event was published, and when it was told that time runs out.
    Column("published_at", UtcTime),
    Column("told_late_at", UtcTime),
    one_of("state", ParkedState),
    sqlite_autoincrement=True,
)
#: What a parked row is called: to park the same again is to park nothing.
_NAME = "batch_id settlement chunk_id rule target reason attempts lane due_bucket held_bucket"
PARKED_NAME = tuple(parked.c[name] for name in _NAME.split())
parked.append_constraint(UniqueConstraint(*PARKED_NAME))
WAITING = parked.c.state != word("closed")
DUE = (parked.c.state == word("due")) & parked.c.taken_by.is_(None)
HELD = (parked.c.state == word("held")) & parked.c.taken_by.is_(None)
TAKEN = WAITING & parked.c.taken_by.is_not(None)
UNTAKEN = WAITING & parked.c.taken_by.is_(None)
UNTAKEN_IN_ORDER = UNTAKEN & parked.c.order_shard.is_not(None)
partial("ix_parked_due", DUE, parked.c.due_at, parked.c.rule, parked.c.target)
partial("ix_parked_due_of_target", DUE, parked.c.rule, parked.c.target, parked.c.due_at)
#: The kinds of what is due: the watcher asks which there are, and reads the first row of each (`statements.due`).
DUE_KIND = (parked.c.rule, parked.c.target, parked.c.held, parked.c.runner)
partial("ix_parked_due_kind", DUE, *DUE_KIND, parked.c.due_at)
partial("ix_parked_due_expiry", DUE, parked.c.rule, parked.c.target, parked.c.expires_at)
DUE_TRIED = DUE & parked.c.order_shard.is_not(None) & (parked.c.attempts > literal_column("0"))
DUE_UNTRIED = DUE & parked.c.order_shard.is_not(None) & (parked.c.attempts == literal_column("0"))
partial("ix_parked_due_tried", DUE_TRIED, parked.c.rule, parked.c.target, parked.c.due_at)
partial("ix_parked_due_untried", DUE_UNTRIED, parked.c.rule, parked.c.target, parked.c.due_at)
partial("ix_parked_held", HELD, parked.c.rule, parked.c.target, parked.c.expires_at)
partial("ix_parked_waiting", WAITING, parked.c.rule, parked.c.target)
TIMED = UNTAKEN & parked.c.published_at.is_not(None)
UNTOLD = TIMED & parked.c.told_late_at.is_(None)
partial("ix_parked_timed", TIMED, parked.c.rule, parked.c.target, parked.c.published_at)
partial("ix_parked_untold", UNTOLD, parked.c.rule, parked.c.target, parked.c.published_at)
#: The kinds of what waits: a retry run asks which there are, and reads one row of each (`statements.kinds`).
PARKED_KIND = (parked.c.rule, parked.c.target, parked.c.state, parked.c.held, parked.c.runner)
partial("ix_parked_kind", UNTAKEN, *PARKED_KIND, parked.c.held_since)
_IN_SHARD = (parked.c.rule, parked.c.target, parked.c.order_shard)
partial("ix_parked_shard", UNTAKEN_IN_ORDER, *_IN_SHARD, parked.c.state, parked.c.held)
# With all that its condition names, or SQLite, which cannot know how few these are, reads the index of all that waits.
partial("ix_parked_taken", TAKEN, *_IN_SHARD, parked.c.state, parked.c.taken_by)
# Without its condition SQLite would look up `taken_by IS NULL` here, and read all that was never taken.
partial("ix_parked_taken_by", parked.c.taken_by.is_not(None), parked.c.taken_by)
# Without it every batch that is removed has the database read all that is parked, for the sake of the foreign key.
partial("ix_parked_closed_by", parked.c.closed_by.is_not(None), parked.c.closed_by)
