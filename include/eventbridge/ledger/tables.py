"""The ledger's tables. The migrations create them; a test proves that both agree."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    false,
)

from eventbridge.ledger.api_tables import api_token as api_token
from eventbridge.ledger.api_tables import kept_response as kept_response
from eventbridge.ledger.api_tables import operator_action as operator_action
from eventbridge.ledger.api_tables import publish_balance as publish_balance
from eventbridge.ledger.columns import FileDetailText, JsonText, Message, RowId, UtcTime
from eventbridge.ledger.definitions import metadata as metadata
from eventbridge.ledger.definitions import one_of, partial, word
from eventbridge.ledger.event_index_tables import event_index as event_index
from eventbridge.ledger.inbox_table import inbox_file as inbox_file
from eventbridge.ledger.ingestion_table import ingestion_stop as ingestion_stop
from eventbridge.ledger.override_tables import override as override
from eventbridge.ledger.pending_table import ON_HOLD as ON_HOLD
from eventbridge.ledger.pending_table import PENDING_KIND as PENDING_KIND
from eventbridge.ledger.pending_table import PENDING_NAME as PENDING_NAME
from eventbridge.ledger.pending_table import SCHEDULED as SCHEDULED
from eventbridge.ledger.pending_table import SCHEDULED_KIND as SCHEDULED_KIND
from eventbridge.ledger.pending_table import SCHEDULED_TRIED as SCHEDULED_TRIED
from eventbridge.ledger.pending_table import SCHEDULED_UNTRIED as SCHEDULED_UNTRIED
from eventbridge.ledger.pending_table import TAKEN as TAKEN
from eventbridge.ledger.pending_table import TIMED as TIMED
from eventbridge.ledger.pending_table import UNREPORTED as UNREPORTED
from eventbridge.ledger.pending_table import UNTAKEN as UNTAKEN
from eventbridge.ledger.pending_table import UNTAKEN_IN_ORDER as UNTAKEN_IN_ORDER
from eventbridge.ledger.pending_table import WAITING as WAITING
from eventbridge.ledger.pending_table import pending as pending
from eventbridge.ledger.quality_tables import expectation_hold as expectation_hold
from eventbridge.ledger.quality_tables import quality_check as quality_check
from eventbridge.ledger.redrive_tables import redrive as redrive
from eventbridge.ledger.redrive_tables import redriven as redriven
from eventbridge.ledger.replay_tables import replay as replay
from eventbridge.ledger.replay_tables import replayed as replayed
from eventbridge.ledger.retention_tables import sweep as sweep
from eventbridge.ledger.rule_tables import rule_change as rule_change
from eventbridge.ledger.rule_tables import rules_in_force as rules_in_force
from eventbridge.ledger.schema_table import event_schema as event_schema
from eventbridge.ledger.stat_table import stat as stat
from eventbridge.ledger.store_size_tables import batch_size as batch_size
from eventbridge.ledger.store_size_tables import store_size as store_size
from eventbridge.ledger.streaming_lease_table import streaming_lease as streaming_lease
from eventbridge.ledger.target_tables import operational_event as operational_event
from eventbridge.ledger.target_tables import target_status as target_status
from eventbridge.ledger.target_tables import target_tokens as target_tokens
from eventbridge.ledger.target_tables import target_window as target_window
from eventbridge.ledger.watcher_table import watcher as watcher
from eventbridge.model.batch import BatchKind, BatchState, FileKind
from eventbridge.model.chunk import ChunkState
from eventbridge.model.pending import PendingState

#: The one row with the id of this ledger; runners/<runner>.json in the store names it.
ledger = Table(
    "ledger",
    metadata,
    Column("singleton", Integer, primary_key=True, autoincrement=False),
    Column("ledger_id", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("serves_from", Text, nullable=False, server_default=""),
    CheckConstraint("singleton = 1", name="singleton"),
)

batch = Table(
    "batch",
    metadata,
    Column("batch_id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("runner", Text, nullable=False),
    Column("bus", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("rule_set", Text, nullable=False),
    Column("planned_at", UtcTime, nullable=False),
    Column("deadline_at", UtcTime),
    Column("replay_id", Text, nullable=False),
    Column("committed_at", UtcTime),
    Column("bus_committed_at", UtcTime),
    Column("kept", Text, nullable=False, server_default="all"),
    Column("cleared", Text, nullable=False, server_default="all"),
    Column("is_full", Boolean, nullable=False, server_default=false()),
    Column("in_index", Text, nullable=False, server_default="no"),
    Column("follows", Text),
    one_of("kind", BatchKind),
    one_of("state", BatchState),
)
UNCOMMITTED = batch.c.state != word("committed")
NORMAL_UNCOMMITTED = (batch.c.kind == word("normal")) & UNCOMMITTED & batch.c.follows.is_(None)
BUS_COMMIT_OUTSTANDING = (
    (batch.c.kind == word("normal")) & (batch.c.state == word("committed")) & batch.c.bus_committed_at.is_(None)
)
# It keeps two listens of a runner from planning the same offsets. A batch that follows begins where its former ends.
partial("uq_batch_normal", NORMAL_UNCOMMITTED, batch.c.runner, unique=True)
partial("uq_batch_follows", batch.c.follows.is_not(None), batch.c.follows, unique=True)
partial("ix_batch_uncommitted", UNCOMMITTED, batch.c.kind, batch.c.runner)
partial("ix_batch_bus_commit_outstanding", BUS_COMMIT_OUTSTANDING, batch.c.runner)
Index("ix_batch_newest", batch.c.planned_at, batch.c.batch_id)
RETRY = batch.c.kind == word("retry")
partial("ix_batch_newest_retry", RETRY, batch.c.planned_at, batch.c.batch_id)
#: Batches whose files retention has not removed completely; retention continues with them.
UNCLEARED = batch.c.kept != batch.c.cleared
partial("ix_batch_uncleared", UNCLEARED, batch.c.batch_id)
#: Batches with an archive that is not in the index: they are searched directly.
UNINDEXED = (
    (batch.c.kind == word("normal"))
    & (batch.c.in_index == word("no"))
    & batch.c.kept.in_([word("all"), word("archive")])
)
partial("ix_batch_unindexed", UNINDEXED, batch.c.planned_at, batch.c.batch_id)
#: Retention finds expired batches by it, whatever else is kept.
Index("ix_batch_kept", batch.c.kept, batch.c.runner, batch.c.bus, batch.c.planned_at, batch.c.batch_id)
Index("ix_batch_rule_set", batch.c.rule_set)

batch_range = Table(
    "batch_range",
    metadata,
    Column("batch_id", Text, ForeignKey("batch.batch_id"), nullable=False),
    Column("topic_name", Text, nullable=False),
    Column("broker_name", Text, nullable=False),
    Column("partition_id", Integer, nullable=False),
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False),
    PrimaryKeyConstraint("batch_id", "topic_name", "broker_name", "partition_id"),
    CheckConstraint("end_offset >= start_offset", name="forward"),
)

batch_file = Table(
    "batch_file",
    metadata,
    Column("batch_id", Text, ForeignKey("batch.batch_id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("path", Text),
    Column("rows", BigInteger, nullable=False),
    Column("detail", FileDetailText, nullable=False),
    PrimaryKeyConstraint("batch_id", "kind", "key"),
    one_of("kind", FileKind),
)

#: Tries of slices that began and neither succeeded nor were taken back; slice "" = all slices of a batch at once.
route_try = Table(
    "route_try",
    metadata,
    Column("batch_id", Text, ForeignKey("batch.batch_id"), nullable=False),
    Column("slice_id", Text, nullable=False),
    Column("tries", Integer, nullable=False),
    PrimaryKeyConstraint("batch_id", "slice_id"),
)

#: Columns have the names of the offset table of RocketMQ EventBridge, except `partition_id` and `bus_identity`.
consumer_offset = Table(
    "consumer_offset",
    metadata,
    Column("consumer_group", Text, nullable=False),
    Column("bus", Text, nullable=False),
    Column("topic_name", Text, nullable=False),
    Column("broker_name", Text, nullable=False),
    Column("partition_id", Integer, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("message_id", Text, nullable=False),
    Column("ctime", UtcTime, nullable=False),
    Column("bus_identity", Text, nullable=False, server_default=""),
    PrimaryKeyConstraint("consumer_group", "topic_name", "broker_name", "partition_id"),
)

delivery_chunk = Table(
    "delivery_chunk",
    metadata,
    Column("batch_id", Text, ForeignKey("batch.batch_id"), nullable=False),
    Column("chunk_id", Integer, nullable=False),
    Column("pool", Text, nullable=False),
    Column("weight", Integer, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("handed_out", Boolean, nullable=False),
    Column("map_index", Integer),
    Column("held", Text, nullable=False),
    Column("claim", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("started_at", UtcTime),
    Column("ended_at", UtcTime),
    Column("worker", Text, nullable=False),
    Column("succeeded", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("error", Message, nullable=False),
    Column("cpu", BigInteger, nullable=False, server_default="0"),  # CPU time of its pushes in microseconds
    Column("claimed_until", UtcTime),  # while started: no other push claims it before then, unless its push is dead
    Column("pieces", JsonText, nullable=False),  # last: columns after a long column are slow to reach
    PrimaryKeyConstraint("batch_id", "chunk_id"),
    one_of("state", ChunkState),
)

#: A rule's share of a batch that is not routed yet.
deferred_match = Table(
    "deferred_match",
    metadata,
    Column("deferred_match_id", RowId, primary_key=True),
    Column("batch_id", Text, ForeignKey("batch.batch_id"), nullable=False),
    Column("runner", Text, nullable=False),
    Column("rule", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("files", JsonText, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("due_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime),
    Column("state", Text, nullable=False),
    Column("made_at", UtcTime, nullable=False),
    Column("taken_by", Text, ForeignKey("batch.batch_id")),
    Column("closed_by", Text, ForeignKey("batch.batch_id")),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("on_hold_seconds", Float, nullable=False, server_default="0"),
    Column("order_spans", JsonText, nullable=False, server_default="[]"),
    UniqueConstraint("batch_id", "rule", "reason"),
    one_of("state", PendingState),
    sqlite_autoincrement=True,
)
DEFERRED_MATCH_WAITING = deferred_match.c.state != word("closed")
DEFERRED_MATCH_SCHEDULED = (deferred_match.c.state == word("scheduled")) & deferred_match.c.taken_by.is_(None)
DEFERRED_MATCH_TAKEN = DEFERRED_MATCH_WAITING & deferred_match.c.taken_by.is_not(None)
partial("ix_deferred_match_waiting", DEFERRED_MATCH_WAITING, deferred_match.c.rule)
partial("ix_deferred_match_scheduled", DEFERRED_MATCH_SCHEDULED, deferred_match.c.rule, deferred_match.c.due_at)
partial("ix_deferred_match_taken", DEFERRED_MATCH_TAKEN, deferred_match.c.rule)
partial("ix_deferred_match_taken_by", deferred_match.c.taken_by.is_not(None), deferred_match.c.taken_by)
# Without it the foreign key makes the database read all deferred matches for every batch that is removed.
partial("ix_deferred_match_closed_by", deferred_match.c.closed_by.is_not(None), deferred_match.c.closed_by)

#: The holder that may send the deliveries of an ordered target's shard, and until when; its name is never reused.
order_shard = Table(
    "order_shard",
    metadata,
    Column("rule", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("shard", Integer, nullable=False),
    Column("lease_holder", Text, nullable=False),
    Column("lease_until", UtcTime, nullable=False),
    PrimaryKeyConstraint("rule", "target", "shard"),
)

rule_status = Table(
    "rule_status",
    metadata,
    Column("rule", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("reason", Message, nullable=False),
    Column("since", UtcTime, nullable=False),
    CheckConstraint("state IN ('enabled', 'disabled', 'on_hold')", name="state"),
)

#: The slots that a rule file last set for a pool: until the value in the file changes, an operator's value wins.
#: `seen_slots`: the slots that the pool had when Airflow was last queried.
pool_applied = Table(
    "pool_applied",
    metadata,
    Column("pool", Text, primary_key=True),
    Column("slots", Integer, nullable=False),
    Column("applied_at", UtcTime, nullable=False),
    Column("seen_slots", Integer, nullable=False),
    Column("seen_at", UtcTime, nullable=False),
)

#: Where a runner's tasks execute (queue of an Airflow executor), and how loaded that worker is.
event_push_worker = Table(
    "event_push_worker",
    metadata,
    Column("worker", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("load", Float, nullable=False),
    Column("seen_at", UtcTime, nullable=False),
)

#: Which runner serves a rule's target, and the worker to which the runner is assigned.
event_target_runner = Table(
    "event_target_runner",
    metadata,
    Column("rule", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("runner", Text, nullable=False),
    Column("worker", Text, ForeignKey("event_push_worker.worker")),
    Column("assigned_at", UtcTime, nullable=False),
    Column("left_at", JsonText, nullable=False, server_default="[]"),
    PrimaryKeyConstraint("rule", "target"),
)
