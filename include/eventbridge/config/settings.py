"""The settings of one installation, from EVENTBRIDGE_* variables; an entry point builds them once and passes them on.

Each field has its unit and reason; docs/settings.md has the same text.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from eventbridge.config.indirect import with_ledger_url
from eventbridge.config.setting_types import (
    PREFIX,
    Count,
    Folder,
    FolderOrBucket,
    Folders,
    LedgerUrl,
    Networks,
    RulesFrom,
    Seconds,
    Size,
    Uri,
    in_bucket,
    is_setting_name,
    setting,
    setting_errors,
    unknown_setting,
)
from eventbridge.errors import SettingsError

MIB = 1 << 20
DAY = 86_400.0


def _is_s3(data: Mapping[str, Any]) -> bool:
    return in_bucket(data["store_uri"])  # each file costs a put there, so files are few and large


class Settings(BaseModel):
    """All settings: locations, sizes and limits.

    Seconds may be written as `60` or `1m`, bytes as `1048576` or `1MiB`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Locations of state, data, buses and rule files.

    home: Folder = setting(Path(".eventbridge"), "folder", "All state of one machine; the next three lie in it.")
    ledger_url: LedgerUrl = setting(
        lambda data: f"sqlite:///{data['home']}/ledger.sqlite",
        "SQLAlchemy URL",
        "The database of state: SQLite, in a file of one host, or `postgresql://`, on a server, for several.",
        repr=False,  # it may hold a password
    )
    store_uri: Uri = setting(
        lambda data: f"file://{data['home']}/store",
        "URI",
        "The object store of data: archive, deliveries, audit; a folder, or s3://connection@bucket/prefix.",
        repr=False,  # it may contain a key
    )
    bus_folder: Folder = setting(
        lambda data: data["home"] / "bus", "folder", "The embedded buses, one SQLite file each; a fast local disk."
    )
    file_target_folders: Folders = setting(
        lambda data: (data["home"] / "files",),
        "folders",
        "The folders that file targets may write below, separated by colons; a relative path counts from the first.",
        min_length=1,
    )
    rules_folder: FolderOrBucket = setting(
        Path("include/rules"),
        "folder or URI",
        "The rule files, used as written; or s3://connection@bucket/prefix, from where they are published.",
    )
    rules_from: RulesFrom = setting(
        lambda data: "published" if in_bucket(data["rules_folder"]) else "files",
        "files or published",
        "What new batches go by: this host's files, or what `eventbridge rules publish` put in force (so of a bucket).",
    )

    # Sizes of batches, chunks and files, and the limits of each stage.

    event_max_size: Size = setting(
        MIB,
        "bytes",
        "The largest event taken; a larger one becomes a dead letter (`malformed`). Bounds memory.",
        ge=1024,
    )
    batch_max_events: Count = setting(
        1_000_000, "events", "The most a batch takes, however quick; of a replay or a redrive 50,000 at most.", ge=1
    )
    batch_target_duration: Seconds = setting(
        15.0, "seconds", "In what time 80 % of a batch's responses are to be there: batches follow it.", gt=0, le=600
    )
    batch_max_size: Size = setting(
        1 << 30, "bytes", "The most one batch takes, for large events; a replay's or a redrive's takes 64MiB.", ge=MIB
    )
    batch_max_deliveries: Count = setting(
        1_000_000, "deliveries", "The most a batch is planned to come to: what settling and reconciliation hold.", ge=1
    )
    batch_max_chunks: Count = setting(
        64, "push tasks", "The most push tasks of one run: each costs the scheduler about 25 ms.", ge=1, le=1024
    )
    batch_timeout: Seconds = setting(
        60.0,
        "seconds",
        "How long a batch may deliver; the rest becomes pending: what a slow target or a closed pool costs its runner.",
        gt=0,
        le=3600,
    )
    batch_late_after: Seconds = setting(
        120.0, "seconds", "How long after it was planned a batch that is not committed counts as late.", gt=0, le=86_400
    )
    prepare_timeout: Seconds = setting(
        60.0,
        "seconds",
        "How long buffer and route may work in one run; what they recorded is kept for the next, so none is endless.",
        gt=0,
        le=3600,
    )
    route_slice_timeout: Seconds = setting(
        30.0,
        "seconds",
        "How long a Spark worker may take over one slice before it is ended and the slice is split: what a loop costs.",
        gt=0,
        le=3600,
    )
    route_rule_cpu_budget: Seconds = setting(
        2.0,
        "seconds",
        "CPU time a budgeted rule may take of a batch; the rest is routed in the slow lane later: what others wait.",
        gt=0,
        le=600,
    )
    route_total_cpu_budget: Seconds = setting(
        10.0,
        "seconds",
        "CPU time after which a worker begins with no further budgeted rule of a batch: what all together cost others.",
        gt=0,
        le=600,
    )
    route_deferred_cpu_budget: Seconds = setting(
        20.0,
        "seconds",
        "CPU time that a budgeted rule may take of a batch in the slow lane; an event that takes all of it fails.",
        gt=0,
        le=600,
    )
    push_timeout: Seconds = setting(
        20.0, "seconds", "How long a push task may send: what a hanging target costs others at most.", gt=0, le=600
    )
    retry_after_max_delay: Seconds = setting(
        86_400.0,
        "seconds",
        "The longest wait that a target can ask for by Retry-After; a longer one is cut to it.",
        gt=0,
        le=30 * 86_400,
    )
    schema_sample_events: Count = setting(
        64, "events", "How many events of each landed file fields are learned of; 0: of none.", ge=0, le=10_000
    )
    schema_example_max_size: Size = setting(
        64, "bytes", "How much of a value is kept as a field's example in the ledger; 0: none is.", ge=0, le=1024
    )
    chunk_max_deliveries: Count | None = setting(
        None,
        "deliveries",
        "The most one push task sends, whatever its targets; not set = what their type says, see below.",
        ge=1,
    )
    chunk_max_size: Size | None = setting(
        None,
        "bytes",
        "The most payload one push task holds, whatever its targets; not set = what their type says.",
        ge=1024,
    )
    buffer_range_events: Count = setting(
        lambda data: 25_000 if _is_s3(data) else 20_000,
        "events",
        "How many events buffer lands and records at a time: what a crash makes it read again. In S3 25000.",
        ge=1,
    )
    segment_responses: Count = setting(
        lambda data: 5_000 if _is_s3(data) else 2_000,
        "responses",
        "After so many responses push writes them down: the most that a crash sends again. In an S3 store 5000.",
        ge=1,
    )
    segment_interval: Seconds = setting(
        lambda data: 12.0 if _is_s3(data) else 1.0,  # at most twice in a push budget if responses arrive soon
        "seconds",
        "After so long push writes down its responses and checks its claim: all that a crash sends again. In S3 12s.",
        gt=0,
        le=60,
    )

    # Disk watermarks of the store, and the limits of retention.

    disk_min_free_size: Size = setting(
        512 * MIB,
        "bytes",
        "With less free space listen plans no new batch: the ones under way must be able to finish.",
        ge=0,
    )
    disk_resume_free_size: Size = setting(
        lambda data: 2 * data["disk_min_free_size"],
        "bytes",
        "With so much free space listen continues after that; more than the least, so that it does not stop at once.",
        ge=0,
    )
    store_max_size: Size | None = setting(
        None,
        "bytes",
        "The largest size of the store: with so much in it listen plans no new batch; not set = as the disk allows.",
        ge=1,
    )
    store_resume_size: Size | None = setting(
        lambda data: None if data["store_max_size"] is None else data["store_max_size"] * 19 // 20,
        "bytes",
        "With no more than this in the store listen continues after that; not set = 95 % of the quota.",
        ge=0,
    )
    retention_deliveries: Seconds = setting(
        30 * DAY,
        "seconds",
        "How long deliveries, outcomes and settlements are kept; at most as long as the archive of their bus.",
        ge=DAY,
    )
    retention_dead_letters: Seconds = setting(
        90 * DAY,
        "seconds",
        "How long dead letters are kept, and can be redriven; at least as long as the archive of their bus.",
        ge=DAY,
    )
    retention_manifests: Seconds = setting(
        400 * DAY,
        "seconds",
        "How long manifests, the audit of record, and the history of rules are kept: a year, and time to look at it.",
        ge=DAY,
    )
    maintain_timeout: Seconds = setting(
        300.0,
        "seconds",
        "How long one run of maintain may remove what is past its retention; the next one continues.",
        gt=0,
        le=3600,
    )

    # Limits of the hourly quality check of a bus and of a target.

    quality_malformed_rate: float = setting(
        0.01, "share", "More malformed events of a bus in an hour fail its quality check.", ge=0, le=1
    )
    quality_duplicate_rate: float = setting(
        0.05, "share", "More duplicate events of a bus in an hour fail its quality check.", ge=0, le=1
    )
    quality_dead_letter_rate: float = setting(
        0.05,
        "share",
        "More dead letters of what was settled of a target in an hour fail its quality check.",
        ge=0,
        le=1,
    )
    quality_pending_rate: float = setting(
        0.5,
        "share",
        "More deliveries of a target that their first try leaves pending fail its quality check.",
        ge=0,
        le=1,
    )
    quality_volume_tolerance: float = setting(
        0.5,
        "share",
        "How far a volume may be below the least and above the most of the same hour of other days.",
        ge=0,
        le=10,
    )
    quality_history_days: Count = setting(
        14,
        "days",
        "How many days back an hour's volumes are compared; fewer than 3 checked ones fail nothing.",
        ge=3,
        le=90,
    )

    # Operation.

    replay_timeout: Seconds = setting(
        6 * 3600.0,
        "seconds",
        "How long a run of eventbridge_replay_archive waits for its replay, which it then pauses; "
        "a reprocessed run continues.",
        gt=0,
        le=30 * DAY,
    )
    retry_max_per_target: Count = setting(
        100_000,
        "deliveries",
        "The most of one target that one retry run takes, but for what was pending together; if it is well.",
        ge=1,
    )
    idempotency_retention: Seconds = setting(
        DAY, "seconds", "How long the API keeps its response to an idempotency key.", ge=60, le=30 * DAY
    )
    heartbeat_connection: str | None = setting(
        None,
        "connection",
        "The connection that says where Airflow sends a heartbeat each minute; not set = it does not.",
    )
    allow_addresses: Networks = setting(
        (),
        "CIDR blocks",
        "Addresses inside (private, loopback ...) that http targets may connect to; public ones always are allowed.",
    )
    spark_remote: Uri | None = setting(
        None,
        "URL",
        "Spark Connect server of the command line, sc://host:port/;token=T; not set = its own. DAGs use a connection.",
        repr=False,  # it may hold a token
    )

    @property
    def rule_cache(self) -> Path:
        """Return the folder of the cache of parsed rule files; if it is removed, all files are parsed again."""
        return self.home / "rule_cache"

    @model_validator(mode="after")
    def _check_sizes(self) -> Settings:
        if self.batch_max_size < self.event_max_size:
            raise ValueError("EVENTBRIDGE_BATCH_MAX_SIZE is below EVENTBRIDGE_EVENT_MAX_SIZE: one event must fit")
        if self.disk_resume_free_size < self.disk_min_free_size:
            raise ValueError("EVENTBRIDGE_DISK_RESUME_FREE_SIZE is below EVENTBRIDGE_DISK_MIN_FREE_SIZE")
        if self.store_resume_size is not None and self.store_resume_size >= (self.store_max_size or 0):
            raise ValueError("EVENTBRIDGE_STORE_RESUME_SIZE is not below EVENTBRIDGE_STORE_MAX_SIZE")
        return self

    @classmethod
    def from_mapping(cls, environ: Mapping[str, str]) -> Settings:
        """Return the settings of `environ` (usually `os.environ`); an empty value counts as absent.

        Raises SettingsError with all errors: a value out of range, an unknown name (with the nearest one).
        """
        written = {name: value for name, value in environ.items() if is_setting_name(name) and value != ""}
        given, errors = with_ledger_url(written)
        known = {name.removeprefix(PREFIX).lower(): value for name, value in given.items()}
        errors += [unknown_setting(name, cls.model_fields) for name in sorted(given) if not _is_setting(name)]
        try:
            settings = cls.model_validate({name: value for name, value in known.items() if name in cls.model_fields})
        except ValidationError as error:
            errors += setting_errors(error, cls.model_fields)
        if errors:
            raise SettingsError("\n".join(errors))
        return settings


def _is_setting(name: str) -> bool:
    return name == name.upper() and name.removeprefix(PREFIX).lower() in Settings.model_fields
