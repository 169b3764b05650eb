"""The first tables: all that the design names, those that later versions fill included."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

#: The database counts these, and never gives one twice; SQLite counts only in a column that is plain INTEGER.
_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _create_partial_index(name: str, table: str, columns: list[str], where: str, unique: bool = False) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


def upgrade() -> None:
    """Make the tables and their indexes."""
    _make_batches()
    _make_waiting()
    _make_statuses()


def _make_batches() -> None:
    op.create_table(
        "ledger",
        sa.Column("singleton", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("ledger_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("singleton = 1", name="ck_ledger_singleton"),
        sa.PrimaryKeyConstraint("singleton", name="pk_ledger"),
    )
    op.create_table(
        "batch",
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("runner", sa.Text(), nullable=False),
        sa.Column("bus", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("rule_set", sa.Text(), nullable=False),
        sa.Column("planned_at", sa.BigInteger(), nullable=False),
        sa.Column("deadline_at", sa.BigInteger(), nullable=True),
        sa.Column("replay_id", sa.Text(), nullable=False),
        sa.Column("committed_at", sa.BigInteger(), nullable=True),
        sa.Column("bus_committed_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("kind IN ('normal', 'retry', 'replay', 'redrive')", name="ck_batch_kind"),
        sa.CheckConstraint(
            "state IN ('planned', 'buffered', 'routed', 'settling', 'committed')", name="ck_batch_state"
        ),
        sa.PrimaryKeyConstraint("batch_id", name="pk_batch"),
    )
    _create_partial_index(
        "ix_batch_bus_commit_pending",
        "batch",
        ["runner"],
        "kind = 'normal' AND state = 'committed' AND bus_committed_at IS NULL",
    )
    op.create_index("ix_batch_newest", "batch", ["planned_at", "batch_id"])
    _create_partial_index("ix_batch_uncommitted", "batch", ["kind", "runner"], "state != 'committed'")
    _create_partial_index(
        "uq_batch_normal", "batch", ["runner"], "kind = 'normal' AND state != 'committed'", unique=True
    )
    op.create_table(
        "batch_range",
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("topic_name", sa.Text(), nullable=False),
        sa.Column("broker_name", sa.Text(), nullable=False),
        sa.Column("queue_id", sa.Integer(), nullable=False),
        sa.Column("start_offset", sa.BigInteger(), nullable=False),
        sa.Column("end_offset", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("end_offset >= start_offset", name="ck_batch_range_forward"),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name="fk_batch_range_batch_id"),
        sa.PrimaryKeyConstraint("batch_id", "topic_name", "broker_name", "queue_id", name="pk_batch_range"),
    )
    op.create_table(
        "batch_file",
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "kind IN ('buffer', 'delivery', 'outcome', 'settlement', 'dead_letter')", name="ck_batch_file_kind"
        ),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name="fk_batch_file_batch_id"),
        sa.PrimaryKeyConstraint("batch_id", "kind", "key", name="pk_batch_file"),
    )
    op.create_table(
        "consumer_offset",
        sa.Column("consumer_group", sa.Text(), nullable=False),
        sa.Column("bus", sa.Text(), nullable=False),
        sa.Column("topic_name", sa.Text(), nullable=False),
        sa.Column("broker_name", sa.Text(), nullable=False),
        sa.Column("queue_id", sa.Integer(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("ctime", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("consumer_group", "topic_name", "broker_name", "queue_id", name="pk_consumer_offset"),
    )
    op.create_table(
        "delivery_chunk",
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("chunk_id", sa.Integer(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("handed_out", sa.Boolean(), nullable=False),
        sa.Column("map_index", sa.Integer(), nullable=True),
        sa.Column("held", sa.Text(), nullable=False),
        sa.Column("claim", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("succeeded", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("pieces", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "state IN ('NEW', 'STARTED', 'ERROR', 'TIMEOUT', 'COMPLETED')", name="ck_delivery_chunk_state"
        ),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name="fk_delivery_chunk_batch_id"),
        sa.PrimaryKeyConstraint("batch_id", "chunk_id", name="pk_delivery_chunk"),
    )


def _make_waiting() -> None:
    op.create_table(
        "parked",
        sa.Column("parked_id", _ROW_ID, nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("settlement", sa.Integer(), nullable=False),
        sa.Column("chunk_id", sa.Integer(), nullable=False),
        sa.Column("runner", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("lane", sa.Text(), nullable=False),
        sa.Column("due_bucket", sa.BigInteger(), nullable=False),
        sa.Column("held_bucket", sa.Text(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("held", sa.Text(), nullable=False),
        sa.Column("held_since", sa.BigInteger(), nullable=True),
        sa.Column("held_seconds", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("order_shard", sa.Integer(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("parked_at", sa.BigInteger(), nullable=False),
        sa.Column("taken_by", sa.Text(), nullable=True),
        sa.Column("closed_by", sa.Text(), nullable=True),
        sa.Column("lineage", sa.Text(), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.CheckConstraint("state IN ('due', 'held', 'closed')", name="ck_parked_state"),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name="fk_parked_batch_id"),
        sa.ForeignKeyConstraint(["closed_by"], ["batch.batch_id"], name="fk_parked_closed_by"),
        sa.ForeignKeyConstraint(["taken_by"], ["batch.batch_id"], name="fk_parked_taken_by"),
        sa.PrimaryKeyConstraint("parked_id", name="pk_parked"),
        sa.UniqueConstraint(
            "batch_id",
            "settlement",
            "chunk_id",
            "rule",
            "target",
            "reason",
            "attempts",
            "lane",
            "due_bucket",
            "held_bucket",
            name="uq_parked_batch_id",
        ),
        sqlite_autoincrement=True,
    )
    _create_partial_index("ix_parked_due", "parked", ["due_at", "rule", "target"], "state = 'due' AND taken_by IS NULL")
    _create_partial_index(
        "ix_parked_due_of_target", "parked", ["rule", "target", "due_at"], "state = 'due' AND taken_by IS NULL"
    )
    _create_partial_index(
        "ix_parked_held", "parked", ["rule", "target", "expires_at"], "state = 'held' AND taken_by IS NULL"
    )
    _create_partial_index("ix_parked_taken_by", "parked", ["taken_by"], "taken_by IS NOT NULL")
    _create_partial_index("ix_parked_waiting", "parked", ["rule", "target"], "state != 'closed'")
    op.create_table(
        "reference",
        sa.Column("reference_id", _ROW_ID, nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("runner", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("taken_by", sa.Text(), nullable=True),
        sa.Column("closed_by", sa.Text(), nullable=True),
        sa.CheckConstraint("state IN ('due', 'held', 'closed')", name="ck_reference_state"),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name="fk_reference_batch_id"),
        sa.ForeignKeyConstraint(["closed_by"], ["batch.batch_id"], name="fk_reference_closed_by"),
        sa.ForeignKeyConstraint(["taken_by"], ["batch.batch_id"], name="fk_reference_taken_by"),
        sa.PrimaryKeyConstraint("reference_id", name="pk_reference"),
        sa.UniqueConstraint("batch_id", "rule", "reason", name="uq_reference_batch_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "order_shard",
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("lease_holder", sa.Text(), nullable=False),
        sa.Column("lease_until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("rule", "target", "shard", name="pk_order_shard"),
    )


def _make_statuses() -> None:
    op.create_table(
        "rule_status",
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("state IN ('enabled', 'disabled', 'held')", name="ck_rule_status_state"),
        sa.PrimaryKeyConstraint("rule", name="pk_rule_status"),
    )
    op.create_table(
        "target_status",
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("state IN ('ok', 'degraded', 'disabled')", name="ck_target_status_state"),
        sa.PrimaryKeyConstraint("rule", "target", name="pk_target_status"),
    )
    op.create_table(
        "pool_applied",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("applied_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pool", name="pk_pool_applied"),
    )
    op.create_table(
        "event_push_worker",
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("load", sa.Float(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("worker", name="pk_event_push_worker"),
    )
    op.create_table(
        "event_target_runner",
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("runner", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("assigned_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["worker"], ["event_push_worker.worker"], name="fk_event_target_runner_worker"),
        sa.PrimaryKeyConstraint("rule", "target", name="pk_event_target_runner"),
    )
