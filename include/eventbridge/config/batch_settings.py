"""Settings of the size of a batch and the time limits of its stages; a part of `Settings`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from eventbridge.config.rules_place import in_bucket
from eventbridge.config.setting_types import Count, Seconds, Size
from eventbridge.config.setting_types import setting as _setting

MIB = 1 << 20


def _is_s3(data: Mapping[str, Any]) -> bool:
    return in_bucket(data["store_uri"])  # each file costs a put there, so files are few and large


class BatchSettings(BaseModel):
    """The sizes of batches, chunks and files, and the limits of each stage."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    event_max_size: Size = _setting(
        MIB,
        "bytes",
        "The largest event taken; a larger one becomes a dead letter (`malformed`). Bounds memory.",
        ge=1024,
    )
    batch_max_events: Count = _setting(
        1_000_000, "events", "The most a batch takes, however quick; of a replay or a redrive 50,000 at most.", ge=1
    )
    batch_target_duration: Seconds = _setting(
        15.0, "seconds", "In what time 80 % of a batch's responses are to be there: batches follow it.", gt=0, le=600
    )
    batch_max_size: Size = _setting(
        1 << 30, "bytes", "The most one batch takes, for large events; a replay's or a redrive's takes 64MiB.", ge=MIB
    )
    batch_max_deliveries: Count = _setting(
        1_000_000, "deliveries", "The most a batch is planned to come to: what settling and reconciliation hold.", ge=1
    )
    batch_max_chunks: Count = _setting(
        64, "push tasks", "The most push tasks of one run: each costs the scheduler about 25 ms.", ge=1, le=1024
    )
    batch_timeout: Seconds = _setting(
        60.0,
        "seconds",
        "How long a batch may deliver; the rest becomes pending: what a slow target or a closed pool costs its runner.",
        gt=0,
        le=3600,
    )
    batch_late_after: Seconds = _setting(
        120.0, "seconds", "How long after it was planned a batch that is not committed counts as late.", gt=0, le=86_400
    )
    prepare_timeout: Seconds = _setting(
        60.0,
        "seconds",
        "How long buffer and route may work in one run; what they recorded is kept for the next, so none is endless.",
        gt=0,
        le=3600,
    )
    route_slice_timeout: Seconds = _setting(
        30.0,
        "seconds",
        "How long a Spark worker may take over one slice before it is ended and the slice is split: what a loop costs.",
        gt=0,
        le=3600,
    )
    route_rule_cpu_budget: Seconds = _setting(
        2.0,
        "seconds",
        "CPU time a budgeted rule may take of a batch; the rest is routed in the slow lane later: what others wait.",
        gt=0,
        le=600,
    )
    route_total_cpu_budget: Seconds = _setting(
        10.0,
        "seconds",
        "CPU time after which a worker begins with no further budgeted rule of a batch: what all together cost others.",
        gt=0,
        le=600,
    )
    route_deferred_cpu_budget: Seconds = _setting(
        20.0,
        "seconds",
        "CPU time that a budgeted rule may take of a batch in the slow lane; an event that takes all of it fails.",
        gt=0,
        le=600,
    )
    push_timeout: Seconds = _setting(
        20.0, "seconds", "How long a push task may send: what a hanging target costs others at most.", gt=0, le=600
    )
    retry_after_max_delay: Seconds = _setting(
        86_400.0,
        "seconds",
        "The longest wait that a target can ask for by Retry-After; a longer one is cut to it.",
        gt=0,
        le=30 * 86_400,
    )
    schema_sample_events: Count = _setting(
        64, "events", "How many events of each landed file fields are learned of; 0: of none.", ge=0, le=10_000
    )
    schema_example_max_size: Size = _setting(
        64, "bytes", "How much of a value is kept as a field's example in the ledger; 0: none is.", ge=0, le=1024
    )
    chunk_max_deliveries: Count | None = _setting(
        None,
        "deliveries",
        "The most one push task sends, whatever its targets; not set = what their type says, see below.",
        ge=1,
    )
    chunk_max_size: Size | None = _setting(
        None,
        "bytes",
        "The most payload one push task holds, whatever its targets; not set = what their type says.",
        ge=1024,
    )
    buffer_range_events: Count = _setting(
        lambda data: 25_000 if _is_s3(data) else 20_000,
        "events",
        "How many events buffer lands and records at a time: what a crash makes it read again. In S3 25000.",
        ge=1,
    )
    segment_responses: Count = _setting(
        lambda data: 5_000 if _is_s3(data) else 2_000,
        "responses",
        "After so many responses push writes them down: the most that a crash sends again. In an S3 store 5000.",
        ge=1,
    )
    segment_interval: Seconds = _setting(
        lambda data: 12.0 if _is_s3(data) else 1.0,  # at most twice in a push budget if responses arrive soon
        "seconds",
        "After so long push writes down its responses and checks its claim: all that a crash sends again. In S3 12s.",
        gt=0,
        le=60,
    )
