"""Reads the settings of an installation from EVENTBRIDGE_* variables. An entry point builds them once and passes them
on.

Each field has its unit and a description, which docs/reference/settings.md repeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from eventbridge.config.indirect import with_ledger_url
from eventbridge.config.setting_types import (
    PREFIX,
    AirflowChanges,
    BaseUrl,
    Count,
    Folder,
    FolderOrBucket,
    Folders,
    LedgerUrl,
    Networks,
    Origins,
    Patterns,
    RulesFrom,
    Seconds,
    Size,
    Uri,
    WebOrigins,
    is_bucket_prefix,
    is_setting_name,
    setting,
    setting_errors,
    unknown_setting,
)
from eventbridge.config.target_locations import TargetLocations, begins
from eventbridge.errors import SettingsError

MIB = 1 << 20
DAY = 86_400.0


def _is_s3(data: Mapping[str, Any]) -> bool:
    return is_bucket_prefix(data["store_uri"])  # each file costs a PUT request, so files are few and large


class Settings(BaseModel):
    """All settings of an installation.

    Seconds may be written as `60` or `1m`, bytes as `1048576` or `1MiB`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Locations of state, data, buses and rule files.

    home: Folder = setting(
        Path(".eventbridge"),
        "folder",
        "All state of one machine; by default, ledger, store, buses and target files are in it.",
    )
    ledger_url: LedgerUrl = setting(
        lambda data: f"sqlite:///{data['home']}/ledger.sqlite",
        "SQLAlchemy URL",
        "The database of the state: SQLite, a file for one host, or `postgresql://`, a server for several hosts.",
        repr=False,  # it may hold a password
    )
    store_uri: Uri = setting(
        lambda data: f"file://{data['home']}/store",
        "URI",
        "The object store for data: archive, deliveries, audit; a folder or s3://connection@bucket/prefix.",
        repr=False,  # it may contain a key
    )
    bus_folder: Folder = setting(
        lambda data: data["home"] / "bus", "folder", "The embedded buses, one SQLite file each; use a fast local disk."
    )
    file_target_folders: Folders = setting(
        lambda data: (data["home"] / "files",),
        "folders",
        "The folders that file targets may write to, separated by colons; relative paths start at the first.",
        min_length=1,
    )
    rules_folder: FolderOrBucket = setting(
        Path("include/rules"),
        "folder or URI",
        "The folder of the rule files; or s3://connection@bucket/prefix, from which they are published.",
    )
    rules_from: RulesFrom = setting(
        lambda data: "published" if is_bucket_prefix(data["rules_folder"]) else "files",
        "files or published",
        "The rules of new batches: this host's files, or the rules published last (always for a bucket).",
    )

    # Sizes of batches, chunks and files, and the limits of each stage.

    event_max_size: Size = setting(
        MIB,
        "bytes",
        "The maximum size of an event; a larger one becomes a dead letter (`malformed`). Bounds memory.",
        ge=1024,
    )
    batch_max_events: Count = setting(
        1_000_000, "events", "The maximum number of events in a batch; at most 50,000 for a replay or redrive.", ge=1
    )
    batch_target_duration: Seconds = setting(
        15.0,
        "seconds",
        "The time in which 80 % of a batch's responses should arrive: it determines batch sizes.",
        gt=0,
        le=600,
    )
    batch_max_size: Size = setting(
        1 << 30, "bytes", "The maximum size of a batch with large events; 64MiB for a replay or redrive.", ge=MIB
    )
    batch_max_deliveries: Count = setting(
        1_000_000,
        "deliveries",
        "The maximum number of deliveries planned for a batch: settling and reconciliation keep them in memory.",
        ge=1,
    )
    batch_max_chunks: Count = setting(
        64,
        "push tasks",
        "The maximum number of push tasks in a run: each costs the scheduler about 25 ms.",
        ge=1,
        le=1024,
    )
    batch_timeout: Seconds = setting(
        60.0,
        "seconds",
        "How long a batch may deliver before the rest becomes pending: limits the delay that a slow target causes.",
        gt=0,
        le=3600,
    )
    batch_late_after: Seconds = setting(
        120.0, "seconds", "The age at which an uncommitted batch counts as late.", gt=0, le=86_400
    )
    prepare_timeout: Seconds = setting(
        60.0,
        "seconds",
        "How long buffer and route may work in one run; the next run continues from the recorded parts.",
        gt=0,
        le=3600,
    )
    route_slice_timeout: Seconds = setting(
        30.0,
        "seconds",
        "How long a Spark worker may take for one slice before it is killed and the slice is split.",
        gt=0,
        le=3600,
    )
    route_rule_cpu_budget: Seconds = setting(
        2.0,
        "seconds",
        "The maximum CPU time of a budgeted rule in a batch; the rest of its events is routed later, in a retry batch.",
        gt=0,
        le=600,
    )
    route_total_cpu_budget: Seconds = setting(
        10.0,
        "seconds",
        "The CPU time after which a worker starts no further budgeted rule of a batch.",
        gt=0,
        le=600,
    )
    route_deferred_cpu_budget: Seconds = setting(
        20.0,
        "seconds",
        "The maximum CPU time of a budgeted rule in a retry batch; an event that uses all of it fails.",
        gt=0,
        le=600,
    )
    push_timeout: Seconds = setting(
        20.0,
        "seconds",
        "How long a push task may send: limits the delay that a hanging target causes for others.",
        gt=0,
        le=600,
    )
    retry_after_max_delay: Seconds = setting(
        86_400.0,
        "seconds",
        "The maximum delay that a target can request with Retry-After; a longer one is reduced to it.",
        gt=0,
        le=30 * 86_400,
    )
    schema_sample_events: Count = setting(
        64, "events", "How many events of each landed file are sampled for the schema; 0: none.", ge=0, le=10_000
    )
    schema_example_max_size: Size = setting(
        64, "bytes", "The maximum size of a field's example value in the ledger; 0: no examples.", ge=0, le=1024
    )
    chunk_max_deliveries: Count | None = setting(
        None,
        "deliveries",
        "The maximum number of deliveries in a push task; not set = depends on the target's type, see below.",
        ge=1,
    )
    chunk_max_size: Size | None = setting(
        None,
        "bytes",
        "The maximum payload of a push task; not set = depends on the target's type.",
        ge=1024,
    )
    buffer_range_events: Count = setting(
        lambda data: 25_000 if _is_s3(data) else 20_000,
        "events",
        "How many events buffer lands and records at a time: limits rereading after a crash. In S3 25000.",
        ge=1,
    )
    segment_responses: Count = setting(
        lambda data: 5_000 if _is_s3(data) else 2_000,
        "responses",
        "The number of responses after which push records them: limits repeated sends after a crash. In S3 5000.",
        ge=1,
    )
    segment_interval: Seconds = setting(
        lambda data: 12.0 if _is_s3(data) else 1.0,  # at most twice in a push budget if responses arrive soon
        "seconds",
        "How often push records its responses and checks its claim: limits repeated sends. In S3 12s.",
        gt=0,
        le=60,
    )

    # Disk watermarks of the store, and the limits of retention.

    disk_min_free_size: Size = setting(
        512 * MIB,
        "bytes",
        "The free space below which listen plans no new batch, so that current batches can finish.",
        ge=0,
    )
    disk_resume_free_size: Size = setting(
        lambda data: 2 * data["disk_min_free_size"],
        "bytes",
        "The free space at which listen plans batches again; above the minimum, so that it does not flap.",
        ge=0,
    )
    store_max_size: Size | None = setting(
        None,
        "bytes",
        "The maximum size of the store: at this size, listen plans no new batch; not set = no quota.",
        ge=1,
    )
    store_resume_size: Size | None = setting(
        lambda data: None if data["store_max_size"] is None else data["store_max_size"] * 19 // 20,
        "bytes",
        "The size of the store at or below which listen plans batches again; not set = 95 % of the quota.",
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
        "How long manifests, the audit records and the history of rules are kept: a year, and time to review it.",
        ge=DAY,
    )
    maintain_timeout: Seconds = setting(
        300.0,
        "seconds",
        "How long one run of maintain may remove expired data; the next run continues.",
        gt=0,
        le=3600,
    )

    # Limits of the hourly quality check of a bus and of a target.

    quality_malformed_rate: float = setting(
        0.01,
        "share",
        "The maximum share of malformed events of a bus in an hour, for its quality check.",
        ge=0,
        le=1,
    )
    quality_duplicate_rate: float = setting(
        0.05,
        "share",
        "The maximum share of duplicate events of a bus in an hour, for its quality check.",
        ge=0,
        le=1,
    )
    quality_dead_letter_rate: float = setting(
        0.05,
        "share",
        "The maximum share of dead letters of a target in an hour, for its quality check.",
        ge=0,
        le=1,
    )
    quality_pending_rate: float = setting(
        0.5,
        "share",
        "The maximum share of a target's deliveries pending after the first attempt, for its quality check.",
        ge=0,
        le=1,
    )
    quality_volume_tolerance: float = setting(
        0.5,
        "share",
        "How far a volume may be below the minimum or above the maximum of the same hour on other days.",
        ge=0,
        le=10,
    )
    quality_history_days: Count = setting(
        14,
        "days",
        "How many days back an hour's volumes are compared; with fewer than 3 checked days, no volume fails.",
        ge=3,
        le=90,
    )

    # Operation.

    replay_timeout: Seconds = setting(
        6 * 3600.0,
        "seconds",
        "How long a run of eventbridge_replay_archive waits for its replay before it pauses it; "
        "a reprocessed run continues.",
        gt=0,
        le=30 * DAY,
    )
    retry_max_per_target: Count = setting(
        100_000,
        "deliveries",
        "The maximum number of deliveries per healthy target in a retry run; ones made pending together may exceed it.",
        ge=1,
    )
    idempotency_retention: Seconds = setting(
        DAY, "seconds", "How long the API keeps its response to an idempotency key.", ge=60, le=30 * DAY
    )
    webhook_allowed_origins: Origins = setting(
        (),
        "DNS names",
        "Senders that get consent in the handshake of CloudEvents web hooks; `*` = any; not set = none.",
    )
    portal_url: BaseUrl = setting(
        "http://127.0.0.1:8090",
        "URL",
        "Where partners reach `eventbridge serve`: the beginning of the links to the portal.",
    )
    portal_origins: WebOrigins = setting(
        (),
        "origins",
        "Origins of the pages that may embed the portal in an iframe, such as https://app.example.com; not set = none.",
    )
    heartbeat_connection: str | None = setting(
        None,
        "connection",
        "The connection to which Airflow sends a heartbeat each minute; not set = no heartbeat.",
    )
    airflow_bus: str | None = setting(
        None,
        "bus",
        "The embedded bus to which Airflow publishes changes of DAG runs, task instances and assets; not set = off.",
    )
    airflow_dags: Patterns = setting(
        (), "DAG ids", "The DAGs whose changes Airflow publishes; `*` stands for any characters; not set = all."
    )
    airflow_changes: AirflowChanges = setting(
        (), "changes", "The changes that Airflow publishes, such as `dag_run.failed`, `task_instance.*`; not set = all."
    )
    allow_addresses: Networks = setting(
        (),
        "CIDR blocks",
        "Internal addresses (private, loopback ...) that http targets may connect to; public ones are always allowed.",
    )
    spark_remote: Uri | None = setting(
        None,
        "URL",
        "The command line's Spark Connect server, sc://host:port/;token=T; not set = its own. DAGs use a connection.",
        repr=False,  # it may hold a token
    )

    @property
    def target_locations(self) -> TargetLocations:
        """The locations where targets of rules may write. They exclude the store, the ledger, the buses and the rule
        files."""
        rules = self.rules_folder
        folders = (self.bus_folder, self.rule_cache, self.spark_folder, *((rules,) if isinstance(rules, Path) else ()))
        own = begins(folders, (self.store_uri, self.ledger_url, str(rules)))
        return TargetLocations(self.file_target_folders, own)

    @property
    def spark_folder(self) -> Path:
        """The folder of the Spark Connect server that `eventbridge deliver` starts."""
        return self.home / "spark"

    @property
    def rule_cache(self) -> Path:
        """The folder that caches parsed rule files. If it is removed, all rule files are parsed again."""
        return self.home / "rule_cache"

    @model_validator(mode="after")
    def _check_sizes(self) -> Settings:
        if self.batch_max_size < self.event_max_size:
            raise ValueError(
                "EVENTBRIDGE_BATCH_MAX_SIZE must be at least EVENTBRIDGE_EVENT_MAX_SIZE: one event must fit"
            )
        if self.disk_resume_free_size < self.disk_min_free_size:
            raise ValueError("EVENTBRIDGE_DISK_RESUME_FREE_SIZE must be at least EVENTBRIDGE_DISK_MIN_FREE_SIZE")
        if self.store_resume_size is not None and self.store_resume_size >= (self.store_max_size or 0):
            raise ValueError("EVENTBRIDGE_STORE_RESUME_SIZE must be below EVENTBRIDGE_STORE_MAX_SIZE")
        return self

    @classmethod
    def from_mapping(cls, environ: Mapping[str, str]) -> Settings:
        """Return the settings of `environ` (usually `os.environ`); an empty value counts as absent.

        Raises SettingsError with all errors, such as values out of range and unknown names.
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
