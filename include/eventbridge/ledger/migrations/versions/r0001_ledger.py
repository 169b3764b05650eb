"""The ledger's tables and indexes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

#: The id of rows that the database numbers, without reusing a number; SQLite does so only in an INTEGER column.
_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables and their indexes.

    The order of the indexes matters: if two fit a query equally well, SQLite uses the one that was created last.
    """
    _make_batches()
    _make_waiting()
    _make_queues()
    _make_rules()
    _make_targets()
    _make_runs()
    _make_repeats()
    _make_store()
    _make_api()


def _create_partial_index(name: str, table: str, columns: list[str], where: str, unique: bool = False) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


def _make_batches() -> None:
    op.create_table(
        "ledger",
        sa.Column("singleton", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("ledger_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("serves_from", sa.Text(), nullable=False, server_default=""),
        sa.CheckConstraint("singleton = 1", name=op.f("ck_ledger_singleton")),
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
        sa.Column("deadline_at", sa.BigInteger()),
        sa.Column("replay_id", sa.Text(), nullable=False),
        sa.Column("committed_at", sa.BigInteger()),
        sa.Column("bus_committed_at", sa.BigInteger()),
        sa.Column("kept", sa.Text(), nullable=False, server_default="all"),
        sa.Column("remaining", sa.Text(), nullable=False, server_default="all"),
        sa.Column("is_full", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("in_index", sa.Text(), nullable=False, server_default="no"),
        sa.Column("follows", sa.Text()),
        sa.CheckConstraint("kind IN ('normal', 'retry', 'replay', 'redrive')", name=op.f("ck_batch_kind")),
        sa.CheckConstraint(
            "state IN ('open', 'planned', 'buffered', 'routed', 'settling', 'committed')", name=op.f("ck_batch_state")
        ),
        sa.PrimaryKeyConstraint("batch_id", name="pk_batch"),
    )
    _create_partial_index(
        "uq_batch_normal",
        "batch",
        ["runner"],
        "kind = 'normal' AND state != 'committed' AND follows IS NULL",
        unique=True,
    )
    _create_partial_index("uq_batch_follows", "batch", ["follows"], "follows IS NOT NULL", unique=True)
    _create_partial_index("ix_batch_uncommitted", "batch", ["kind", "runner"], "state != 'committed'")
    _create_partial_index(
        "ix_batch_bus_commit_outstanding",
        "batch",
        ["runner"],
        "kind = 'normal' AND state = 'committed' AND bus_committed_at IS NULL",
    )
    op.create_index("ix_batch_newest", "batch", ["planned_at", "batch_id"])
    _create_partial_index("ix_batch_newest_retry", "batch", ["planned_at", "batch_id"], "kind = 'retry'")
    _create_partial_index("ix_batch_removal_pending", "batch", ["batch_id"], "kept != remaining")
    _create_partial_index(
        "ix_batch_unindexed",
        "batch",
        ["planned_at", "batch_id"],
        "kind = 'normal' AND in_index = 'no' AND kept IN ('all', 'archive')",
    )
    op.create_index("ix_batch_kept", "batch", ["kept", "runner", "bus", "planned_at", "batch_id"])
    op.create_index("ix_batch_rule_set", "batch", ["rule_set"])
    op.create_table(
        "batch_range",
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("topic_name", sa.Text(), nullable=False),
        sa.Column("broker_name", sa.Text(), nullable=False),
        sa.Column("partition_id", sa.Integer(), nullable=False),
        sa.Column("start_offset", sa.BigInteger(), nullable=False),
        sa.Column("end_offset", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("end_offset >= start_offset", name=op.f("ck_batch_range_forward")),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name="fk_batch_range_batch_id"),
        sa.PrimaryKeyConstraint("batch_id", "topic_name", "broker_name", "partition_id", name="pk_batch_range"),
    )
    op.create_table(
        "batch_file",
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("path", sa.Text()),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "kind IN ('buffer', 'delivery', 'outcome', 'settlement', 'dead_letter')", name=op.f("ck_batch_file_kind")
        ),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name="fk_batch_file_batch_id"),
        sa.PrimaryKeyConstraint("batch_id", "kind", "key", name="pk_batch_file"),
    )
    op.create_table(
        "batch_size",
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("deliveries", sa.BigInteger(), nullable=False),
        sa.Column("archive", sa.BigInteger(), nullable=False),
        sa.Column("dead_letters", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("batch_id", name="pk_batch_size"),
    )
    op.create_table(
        "route_try",
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("slice_id", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name="fk_route_try_batch_id"),
        sa.PrimaryKeyConstraint("batch_id", "slice_id", name="pk_route_try"),
    )
    op.create_table(
        "consumer_offset",
        sa.Column("consumer_group", sa.Text(), nullable=False),
        sa.Column("bus", sa.Text(), nullable=False),
        sa.Column("topic_name", sa.Text(), nullable=False),
        sa.Column("broker_name", sa.Text(), nullable=False),
        sa.Column("partition_id", sa.Integer(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("ctime", sa.BigInteger(), nullable=False),
        sa.Column("bus_identity", sa.Text(), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint(
            "consumer_group", "topic_name", "broker_name", "partition_id", name="pk_consumer_offset"
        ),
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
        sa.Column("map_index", sa.Integer()),
        sa.Column("hold_reason", sa.Text(), nullable=False),
        sa.Column("claim", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger()),
        sa.Column("ended_at", sa.BigInteger()),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("succeeded", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("cpu", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("claimed_until", sa.BigInteger()),
        sa.Column("pieces", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "state IN ('new', 'started', 'error', 'timeout', 'completed')", name=op.f("ck_delivery_chunk_state")
        ),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name="fk_delivery_chunk_batch_id"),
        sa.PrimaryKeyConstraint("batch_id", "chunk_id", name="pk_delivery_chunk"),
    )


def _make_waiting() -> None:
    op.create_table(
        "pending",
        sa.Column("pending_id", _ROW_ID, nullable=False),
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
        sa.Column("hold_bucket", sa.Text(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("hold_reason", sa.Text(), nullable=False),
        sa.Column("on_hold_since", sa.BigInteger()),
        sa.Column("on_hold_seconds", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.BigInteger()),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("order_shard", sa.Integer()),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("pending_at", sa.BigInteger(), nullable=False),
        sa.Column("taken_by", sa.Text()),
        sa.Column("closed_by", sa.Text()),
        sa.Column("lineage", sa.Text(), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.Column("order_spans", sa.Text(), nullable=False, server_default="[]"),
        sa.Column("published_at", sa.BigInteger()),
        sa.Column("late_reported_at", sa.BigInteger()),
        sa.CheckConstraint("state IN ('scheduled', 'on_hold', 'closed')", name=op.f("ck_pending_state")),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name="fk_pending_batch_id"),
        sa.ForeignKeyConstraint(["closed_by"], ["batch.batch_id"], name="fk_pending_closed_by"),
        sa.ForeignKeyConstraint(["taken_by"], ["batch.batch_id"], name="fk_pending_taken_by"),
        sa.PrimaryKeyConstraint("pending_id", name="pk_pending"),
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
            "hold_bucket",
            name="uq_pending_batch_id",
        ),
        sqlite_autoincrement=True,
    )
    _create_partial_index(
        "ix_pending_scheduled", "pending", ["due_at", "rule", "target"], "state = 'scheduled' AND taken_by IS NULL"
    )
    _create_partial_index(
        "ix_pending_scheduled_of_target",
        "pending",
        ["rule", "target", "due_at"],
        "state = 'scheduled' AND taken_by IS NULL",
    )
    _create_partial_index(
        "ix_pending_scheduled_kind",
        "pending",
        ["rule", "target", "hold_reason", "runner", "due_at"],
        "state = 'scheduled' AND taken_by IS NULL",
    )
    _create_partial_index(
        "ix_pending_scheduled_expiry",
        "pending",
        ["rule", "target", "expires_at"],
        "state = 'scheduled' AND taken_by IS NULL",
    )
    _create_partial_index(
        "ix_pending_scheduled_tried",
        "pending",
        ["rule", "target", "due_at"],
        "state = 'scheduled' AND taken_by IS NULL AND order_shard IS NOT NULL AND attempts > 0",
    )
    _create_partial_index(
        "ix_pending_scheduled_untried",
        "pending",
        ["rule", "target", "due_at"],
        "state = 'scheduled' AND taken_by IS NULL AND order_shard IS NOT NULL AND attempts = 0",
    )
    _create_partial_index(
        "ix_pending_on_hold", "pending", ["rule", "target", "expires_at"], "state = 'on_hold' AND taken_by IS NULL"
    )
    _create_partial_index("ix_pending_waiting", "pending", ["rule", "target"], "state != 'closed'")
    _create_partial_index(
        "ix_pending_timed",
        "pending",
        ["rule", "target", "published_at"],
        "state != 'closed' AND taken_by IS NULL AND published_at IS NOT NULL",
    )
    _create_partial_index(
        "ix_pending_unreported",
        "pending",
        ["rule", "target", "published_at"],
        "state != 'closed' AND taken_by IS NULL AND published_at IS NOT NULL AND late_reported_at IS NULL",
    )
    _create_partial_index(
        "ix_pending_kind",
        "pending",
        ["rule", "target", "state", "hold_reason", "runner", "on_hold_since"],
        "state != 'closed' AND taken_by IS NULL",
    )
    _create_partial_index(
        "ix_pending_shard",
        "pending",
        ["rule", "target", "order_shard", "state", "hold_reason"],
        "state != 'closed' AND taken_by IS NULL AND order_shard IS NOT NULL",
    )
    _create_partial_index(
        "ix_pending_taken",
        "pending",
        ["rule", "target", "order_shard", "state", "taken_by"],
        "state != 'closed' AND taken_by IS NOT NULL",
    )
    _create_partial_index("ix_pending_taken_by", "pending", ["taken_by"], "taken_by IS NOT NULL")
    _create_partial_index("ix_pending_closed_by", "pending", ["closed_by"], "closed_by IS NOT NULL")
    op.create_table(
        "deferred_match",
        sa.Column("deferred_match_id", _ROW_ID, nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("runner", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger()),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("taken_by", sa.Text()),
        sa.Column("closed_by", sa.Text()),
        sa.Column("tries", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("on_hold_seconds", sa.Float(), nullable=False, server_default="0"),
        sa.Column("order_spans", sa.Text(), nullable=False, server_default="[]"),
        sa.CheckConstraint("state IN ('scheduled', 'on_hold', 'closed')", name=op.f("ck_deferred_match_state")),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name="fk_deferred_match_batch_id"),
        sa.ForeignKeyConstraint(["closed_by"], ["batch.batch_id"], name="fk_deferred_match_closed_by"),
        sa.ForeignKeyConstraint(["taken_by"], ["batch.batch_id"], name="fk_deferred_match_taken_by"),
        sa.PrimaryKeyConstraint("deferred_match_id", name="pk_deferred_match"),
        sa.UniqueConstraint("batch_id", "rule", "reason", name="uq_deferred_match_batch_id"),
        sqlite_autoincrement=True,
    )
    _create_partial_index("ix_deferred_match_waiting", "deferred_match", ["rule"], "state != 'closed'")
    _create_partial_index(
        "ix_deferred_match_scheduled", "deferred_match", ["rule", "due_at"], "state = 'scheduled' AND taken_by IS NULL"
    )
    _create_partial_index(
        "ix_deferred_match_taken", "deferred_match", ["rule"], "state != 'closed' AND taken_by IS NOT NULL"
    )
    _create_partial_index("ix_deferred_match_taken_by", "deferred_match", ["taken_by"], "taken_by IS NOT NULL")
    _create_partial_index("ix_deferred_match_closed_by", "deferred_match", ["closed_by"], "closed_by IS NOT NULL")
    op.create_table(
        "order_shard",
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("lease_holder", sa.Text(), nullable=False),
        sa.Column("lease_until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("rule", "target", "shard", name="pk_order_shard"),
    )


def _make_queues() -> None:
    op.create_table(
        "queue_delivery",
        sa.Column("number", _ROW_ID, nullable=False),
        sa.Column("delivery_id", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("visible_at", sa.BigInteger(), nullable=False),
        sa.Column("receipt", sa.Text()),
        sa.Column("received_at", sa.BigInteger()),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("ended", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger()),
        sa.Column("reason", sa.Text()),
        sa.Column("detail", sa.Text()),
        sa.Column("order_key", sa.Text()),
        sa.Column("head", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint(
            "state IN ('ready', 'blocked', 'received', 'acknowledged', 'dead', 'settled')",
            name=op.f("ck_queue_delivery_state"),
        ),
        sa.PrimaryKeyConstraint("number", name="pk_queue_delivery"),
        sa.UniqueConstraint("delivery_id", name="uq_queue_delivery_delivery_id"),
        sqlite_autoincrement=True,
    )
    unfinished = "state IN ('ready', 'blocked', 'received')"
    of_batch = ["batch_id", "rule", "target"]
    table = "queue_delivery"
    _create_partial_index(f"ix_{table}_ready", table, ["rule", "target", "visible_at", "number"], "state = 'ready'")
    _create_partial_index(f"ix_{table}_received", table, ["visible_at"], "state = 'received'")
    _create_partial_index(
        f"ix_{table}_finished", table, [*of_batch, "finished_at"], "state IN ('acknowledged', 'dead')"
    )
    _create_partial_index(f"ix_{table}_unfinished", table, of_batch, unfinished)
    _create_partial_index(f"ix_{table}_settled", table, ["finished_at"], "state = 'settled'")
    _create_partial_index(f"uq_{table}_receipt", table, ["receipt"], "receipt IS NOT NULL", unique=True)
    _create_partial_index(
        f"ix_{table}_order", table, ["rule", "target", "order_key", "number"], f"{unfinished} AND order_key IS NOT NULL"
    )


def _make_rules() -> None:
    op.create_table(
        "rule_status",
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("state IN ('enabled', 'disabled', 'on_hold')", name=op.f("ck_rule_status_state")),
        sa.PrimaryKeyConstraint("rule", name="pk_rule_status"),
    )
    op.create_table(
        "rules_in_force",
        sa.Column("singleton", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("rule_set", sa.Text(), nullable=False),
        sa.Column("runners", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("errors", sa.Text(), nullable=False),
        sa.Column("streaming_task_seconds", sa.Text(), nullable=False, server_default="{}"),
        sa.CheckConstraint("singleton = 1", name=op.f("ck_rules_in_force_singleton")),
        sa.PrimaryKeyConstraint("singleton", name="pk_rules_in_force"),
    )
    op.create_table(
        "rule_change",
        sa.Column("change_id", _ROW_ID, nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("rule_set", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("change_id", name="pk_rule_change"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_rule_change_rule", "rule_change", ["rule", "change_id"])
    op.create_table(
        "override",
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("kind IN ('paused', 'disabled', 'priority', 'rate')", name=op.f("ck_override_kind")),
        sa.PrimaryKeyConstraint("rule", "target", "kind", name="pk_override"),
    )
    op.create_table(
        "event_schema",
        sa.Column("bus", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("sampled", sa.BigInteger(), nullable=False),
        sa.Column("first_at", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.Column("fields", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("bus", "type", name="pk_event_schema"),
    )
    op.create_table(
        "expectation_hold",
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("found_in", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("rule", name="pk_expectation_hold"),
    )
    op.create_table(
        "quality_check",
        sa.Column("hour", sa.BigInteger(), nullable=False),
        sa.Column("checked_at", sa.BigInteger(), nullable=False),
        sa.Column("measures", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("hour", name="pk_quality_check"),
    )


def _make_targets() -> None:
    op.create_table(
        "target_status",
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger()),
        sa.Column("good", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("slow", sa.Boolean(), nullable=False, server_default="0"),
        sa.Column("failing_since", sa.BigInteger()),
        sa.Column("paused_until", sa.BigInteger()),
        sa.CheckConstraint("state IN ('ok', 'degraded', 'half-open', 'disabled')", name=op.f("ck_target_status_state")),
        sa.PrimaryKeyConstraint("rule", "target", name="pk_target_status"),
    )
    op.create_table(
        "target_window",
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("second", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.Column("slow", sa.BigInteger(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("rule", "target", "second", name="pk_target_window"),
    )
    op.create_table(
        "target_tokens",
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("count", sa.Float(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("rule", "target", name="pk_target_tokens"),
    )
    op.create_table(
        "operational_event",
        sa.Column("operation_id", _ROW_ID, nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("operation_id", name="pk_operational_event"),
        sa.UniqueConstraint("event_id", name="uq_operational_event_event_id"),
        sqlite_autoincrement=True,
    )


def _make_runs() -> None:
    op.create_table(
        "pool_applied",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("applied_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_slots", sa.Integer(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
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
        sa.Column("worker", sa.Text()),
        sa.Column("assigned_at", sa.BigInteger(), nullable=False),
        sa.Column("left_at", sa.Text(), nullable=False, server_default="[]"),
        sa.ForeignKeyConstraint(["worker"], ["event_push_worker.worker"], name="fk_event_target_runner_worker"),
        sa.PrimaryKeyConstraint("rule", "target", name="pk_event_target_runner"),
    )
    op.create_table(
        "streaming_lease",
        sa.Column("runner", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("batch_id", sa.Text()),
        sa.Column("wants_next", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("next_holder", sa.Text()),
        sa.Column("next_until", sa.BigInteger()),
        sa.PrimaryKeyConstraint("runner", name="pk_streaming_lease"),
    )
    op.create_table(
        "watcher",
        sa.Column("singleton", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("checked_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("singleton = 1", name=op.f("ck_watcher_singleton")),
        sa.PrimaryKeyConstraint("singleton", name="pk_watcher"),
    )
    op.create_table(
        "dropped_changes",
        sa.Column("singleton", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("dropped", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("singleton = 1", name=op.f("ck_dropped_changes_singleton")),
        sa.PrimaryKeyConstraint("singleton", name="pk_dropped_changes"),
    )
    op.create_table(
        "asset_watcher",
        sa.Column("asset", sa.Text(), nullable=False),
        sa.Column("bus", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("offsets", sa.Text(), nullable=False),
        sa.Column("identities", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("claimed", sa.BigInteger(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger()),
        sa.Column("moved_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("asset", "bus", "name", name="pk_asset_watcher"),
    )
    op.create_table(
        "ingestion_stop",
        sa.Column("singleton", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False, server_default="disk"),
        sa.CheckConstraint("singleton = 1", name=op.f("ck_ingestion_stop_singleton")),
        sa.PrimaryKeyConstraint("singleton", name="pk_ingestion_stop"),
    )
    op.create_table(
        "inbox_file",
        sa.Column("bus", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("end", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("again", sa.BigInteger(), nullable=False),
        sa.Column("stored_at", sa.BigInteger(), nullable=False),
        sa.Column("acknowledged", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("bus", "topic", "start", name="pk_inbox_file"),
    )


def _make_repeats() -> None:
    op.create_table(
        "redrive",
        sa.Column("redrive_id", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("selection", sa.Text(), nullable=False),
        sa.Column("rate", sa.Float()),
        sa.Column("retransform", sa.Boolean(), nullable=False),
        sa.Column("again", sa.Boolean(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger()),
        sa.CheckConstraint("state IN ('running', 'done', 'cancelled')", name=op.f("ck_redrive_state")),
        sa.PrimaryKeyConstraint("redrive_id", name="pk_redrive"),
        sa.UniqueConstraint("run", name="uq_redrive_run"),
    )
    op.create_table(
        "redriven",
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("redrive_id", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("rows", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name="fk_redriven_batch_id"),
        sa.ForeignKeyConstraint(["redrive_id"], ["redrive.redrive_id"], name="fk_redriven_redrive_id"),
        sa.PrimaryKeyConstraint("file", "sequence", name="pk_redriven"),
    )
    op.create_index("ix_redriven_batch_id", "redriven", ["batch_id"])
    op.create_table(
        "replay",
        sa.Column("replay_id", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("bus", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("selection", sa.Text(), nullable=False),
        sa.Column("parts", sa.Text(), nullable=False),
        sa.Column("rate", sa.Float()),
        sa.Column("new_ids", sa.Boolean(), nullable=False),
        sa.Column("skip_delivered", sa.Boolean(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger()),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("position", sa.Text(), nullable=False),
        sa.CheckConstraint("state IN ('running', 'paused', 'done', 'cancelled')", name=op.f("ck_replay_state")),
        sa.PrimaryKeyConstraint("replay_id", name="pk_replay"),
        sa.UniqueConstraint("run", name="uq_replay_run"),
    )
    op.create_table(
        "replayed",
        sa.Column("replay_id", sa.Text(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("first_row", sa.BigInteger(), nullable=False),
        sa.Column("end_row", sa.BigInteger(), nullable=False),
        sa.Column("batch_id", sa.Text()),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name="fk_replayed_batch_id"),
        sa.ForeignKeyConstraint(["replay_id"], ["replay.replay_id"], name="fk_replayed_replay_id"),
        sa.PrimaryKeyConstraint("replay_id", "sequence", "part", "file", name="pk_replayed"),
    )
    op.create_index("ix_replayed_batch_id", "replayed", ["batch_id"])


def _make_store() -> None:
    op.create_table(
        "store_size",
        sa.Column("runner", sa.Text(), nullable=False),
        sa.Column("bus", sa.Text(), nullable=False),
        sa.Column("area", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("counted_at", sa.BigInteger()),
        sa.CheckConstraint(
            "area IN ('deliveries', 'archive', 'dead_letters', 'other')", name=op.f("ck_store_size_area")
        ),
        sa.PrimaryKeyConstraint("runner", "bus", "area", name="pk_store_size"),
    )
    op.create_table(
        "sweep",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("through", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "name IN ('lost', 'expired', 'compacting', 'compacted', 'erasing', 'erased')", name=op.f("ck_sweep_name")
        ),
        sa.PrimaryKeyConstraint("name", name="pk_sweep"),
    )
    op.create_table(
        "event_index",
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("day", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("path", name="pk_event_index"),
    )
    op.create_table(
        "stat",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("grain", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("bus", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("matched", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("cpu", sa.BigInteger(), nullable=False),
        sa.Column("latency", sa.BigInteger(), nullable=False),
        sa.Column("within_50", sa.BigInteger(), nullable=False),
        sa.Column("within_100", sa.BigInteger(), nullable=False),
        sa.Column("within_250", sa.BigInteger(), nullable=False),
        sa.Column("within_500", sa.BigInteger(), nullable=False),
        sa.Column("within_1000", sa.BigInteger(), nullable=False),
        sa.Column("within_2500", sa.BigInteger(), nullable=False),
        sa.Column("within_5000", sa.BigInteger(), nullable=False),
        sa.Column("within_10000", sa.BigInteger(), nullable=False),
        sa.Column("within_30000", sa.BigInteger(), nullable=False),
        sa.Column("within_60000", sa.BigInteger(), nullable=False),
        sa.Column("within_300000", sa.BigInteger(), nullable=False),
        sa.Column("within_1800000", sa.BigInteger(), nullable=False),
        sa.Column("within_21600000", sa.BigInteger(), nullable=False),
        sa.Column("within_86400000", sa.BigInteger(), nullable=False),
        sa.Column("later", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "grain", "at", "bus", "rule", "target", "outcome", name="pk_stat"),
        sqlite_with_rowid=False,
    )


def _make_api() -> None:
    op.create_table(
        "api_token",
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger()),
        sa.Column("revoked_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("token_hash", name="pk_api_token"),
        sa.UniqueConstraint("name", name="uq_api_token_name"),
    )
    op.create_table(
        "operator_action",
        sa.Column("action_id", _ROW_ID, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("call", sa.Text(), nullable=False),
        sa.Column("asked", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer()),
        sa.PrimaryKeyConstraint("action_id", name="pk_operator_action"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "publish_balance",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("events", sa.Float(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", name="pk_publish_balance"),
    )
    op.create_table(
        "kept_response",
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("call_hash", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("caller", "key", name="pk_kept_response"),
    )
    op.create_index("ix_kept_response_made_at", "kept_response", ["made_at"])
