"""The ledger's tables about archived events that are delivered again; see `eventbridge.ledger.tables`."""

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
from eventbridge.model.redelivery import ReplayState

#: Archived events to deliver again; `run` is the Airflow run, or the command, that requested it.
replay = Table(
    "replay",
    metadata,
    Column("replay_id", Text, primary_key=True),
    Column("run", Text, nullable=False),
    Column("bus", Text, nullable=False),
    Column("since", UtcTime, nullable=False),
    Column("until", UtcTime, nullable=False),
    Column("selection", JsonText, nullable=False),
    Column("parts", JsonText, nullable=False),
    Column("rate", Float),
    Column("new_ids", Boolean, nullable=False),
    Column("skip_delivered", Boolean, nullable=False),
    Column("state", Text, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("next_at", UtcTime, nullable=False),
    Column("ended_at", UtcTime),
    Column("turn", Integer, nullable=False),
    Column("position", JsonText, nullable=False),
    UniqueConstraint("run"),
    one_of("state", ReplayState),
)

#: Which rows of an archive file a replay searched at a turn, and which of them a batch took.
replayed = Table(
    "replayed",
    metadata,
    Column("replay_id", Text, ForeignKey("replay.replay_id"), nullable=False),
    Column("turn", Integer, nullable=False),
    Column("file", Text, nullable=False),
    Column("part", Integer, nullable=False),
    Column("first_row", BigInteger, nullable=False),
    Column("end_row", BigInteger, nullable=False),
    Column("batch_id", Text, ForeignKey("batch.batch_id")),
    Column("count", BigInteger, nullable=False),
    Column("rows", Text, nullable=False),
    PrimaryKeyConstraint("replay_id", "turn", "part", "file"),
)
Index("ix_replayed_batch_id", replayed.c.batch_id)
