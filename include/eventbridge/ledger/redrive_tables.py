"""The ledger's tables about dead letters that are delivered again; see `eventbridge.ledger.tables`."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

from eventbridge.ledger.columns import JsonText, UtcTime
from eventbridge.ledger.definitions import metadata, one_of
from eventbridge.model.redelivery import RedriveState

#: Dead letters to deliver again; `run` is the Airflow run, or the command, that requested it.
redrive = Table(
    "redrive",
    metadata,
    Column("redrive_id", Text, primary_key=True),
    Column("run", Text, nullable=False),
    Column("selection", JsonText, nullable=False),
    Column("rate", Float),
    Column("retransform", Boolean, nullable=False),
    Column("again", Boolean, nullable=False),
    Column("state", Text, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("next_at", UtcTime, nullable=False),
    Column("ended_at", UtcTime),
    UniqueConstraint("run"),
    one_of("state", RedriveState),
)

#: Which rows of a dead letter file a batch took; `turn` counts the batches that took rows of the file, from 0:
#: if two batches take rows of a file at once, the second finds its turn taken.
redriven = Table(
    "redriven",
    metadata,
    Column("file", Text, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("redrive_id", Text, ForeignKey("redrive.redrive_id"), nullable=False),
    Column("batch_id", Text, ForeignKey("batch.batch_id"), nullable=False),
    Column("rows", Text, nullable=False),
    Column("count", BigInteger, nullable=False),
    PrimaryKeyConstraint("file", "turn"),
)
Index("ix_redriven_batch_id", redriven.c.batch_id)
