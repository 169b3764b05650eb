"""The settings of one installation, from EVENTBRIDGE_* names; built once by an entry point and passed down.

Every field's unit and reason stand here and, the same, in docs/settings.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from eventbridge.config.indirect import with_ledger_url
from eventbridge.config.rules_place import FolderOrBucket, RulesFrom, in_bucket
from eventbridge.config.setting_mistakes import PREFIX as PREFIX
from eventbridge.config.setting_mistakes import is_setting_name, setting_mistakes, unknown_setting
from eventbridge.config.setting_types import Count, Folder, LedgerUrl, Networks, Seconds, Size, Uri
from eventbridge.config.setting_types import setting as _setting
from eventbridge.errors import SettingsError

MIB = 1 << 20
DAY = 86_400.0


def _is_s3(data: Mapping[str, Any]) -> bool:
    return in_bucket(data["store_uri"])  # each file costs a put there: few large ones


class Settings(BaseModel):
    """Where things lie and how much is taken at a time.

    Seconds may be written as `60` or `1m`, bytes as `1048576` or `1MiB`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    home: Folder = _setting(Path(".eventbridge"), "folder", "All state of one machine; the next three lie in it.")
    ledger_url: LedgerUrl = _setting(
        lambda data: f"sqlite:///{data['home']}/ledger.sqlite",
        "SQLAlchemy URL",
        "The database of state: SQLite, in a file of one host, or `postgresql://`, on a server, for several.",
        repr=False,  # it may hold a password
    )
    store_uri: Uri = _setting(
        lambda data: f"file://{data['home']}/store",
        "URI",
        "The object store of data: archive, deliveries, audit; a folder, or s3://connection@bucket/prefix.",
        repr=False,  # somebody may have written a key into it
    )
    bus_folder: Folder = _setting(
        lambda data: data["home"] / "bus", "folder", "The embedded buses, one SQLite file each; a fast local disk."
    )
    rules_folder: FolderOrBucket = _setting(
        Path("include/rules"),
        "folder or URI",
        "The rule files, used as written; or s3://connection@bucket/prefix, from where they are published.",
    )
    rules_from: RulesFrom = _setting(
        lambda data: "published" if in_bucket(data["rules_folder"]) else "files",
        "files or published",
        "What new batches go by: this host's files, or what `eventbridge rules publish` put in force (so of a bucket).",
    )
    event_max_bytes: Size = _setting(
        MIB, "bytes", "The largest event taken; a larger one is a dead letter Malformed. Bounds memory.", ge=1024
    )
    batch_max_events: Count = _setting(
        500_000, "events", "The most a batch takes, however quick; of a replay or a redrive 50,000 at most.", ge=1
    )
    batch_target_seconds: Seconds = _setting(
        15.0, "seconds", "In what time 80 % of a batch's answers are to be there: batches follow it.", gt=0, le=600
    )
    batch_max_bytes: Size = _setting(
        1 << 30, "bytes", "The most one batch takes, for large events; a replay's or a redrive's takes 64MiB.", ge=MIB
    )
    batch_max_deliveries: Count = _setting(
        1_000_000, "deliveries", "The most a batch is planned to come to: what settling and its books hold.", ge=1
    )
    batch_max_chunks: Count = _setting(
        64, "push tasks", "The most push tasks of one run: each costs the scheduler about 25 ms.", ge=1, le=1024
    )
    batch_deadline_seconds: Seconds = _setting(
        60.0,
        "seconds",
        "How long a batch may deliver; the rest is parked: what a slow target or a closed pool costs its runner.",
        gt=0,
        le=3600,
    )
    batch_late_seconds: Seconds = _setting(
        120.0, "seconds", "When Airflow tells that a run is late, from when it was queued.", gt=0, le=86_400
    )
    prepare_budget_seconds: Seconds = _setting(
        60.0,
        "seconds",
        "How long buffer and route may work in one run; what they recorded is kept for the next, so none is endless.",
        gt=0,
        le=3600,
    )
    route_slice_seconds: Seconds = _setting(
        30.0,
        "seconds",
        "How long a Spark worker may take over one slice before it is ended and the slice is split: what a loop costs.",
        gt=0,
        le=3600,
    )
    route_costly_budget_seconds: Seconds = _setting(
        2.0,
        "seconds",
        "CPU time a costly rule may take of a batch; the rest is routed in the slow lane later: what others wait.",
        gt=0,
        le=600,
    )
    route_costly_total_seconds: Seconds = _setting(
        10.0,
        "seconds",
        "CPU time after which a worker begins with no further costly rule of a batch: what all together cost others.",
        gt=0,
        le=600,
    )
    route_reference_budget_seconds: Seconds = _setting(
        20.0,
        "seconds",
        "CPU time that a costly rule may take of a batch in the slow lane; an event that takes all of it fails.",
        gt=0,
        le=600,
    )
    push_budget_seconds: Seconds = _setting(
        20.0, "seconds", "How long a push task may send: what a hanging target costs others at most.", gt=0, le=600
    )
    heartbeat_connection: str | None = _setting(
        None,
        "connection",
        "The connection that says where Airflow sends a heartbeat each minute; not set = it does not.",
    )
    schema_sample_events: Count = _setting(
        64, "events", "How many events of each landed file fields are learned of; 0: of none.", ge=0, le=10_000
    )
    schema_example_bytes: Size = _setting(
        64, "bytes", "How much of a value is kept as a field's example in the ledger; 0: none is.", ge=0, le=1024
    )
    chunk_max_deliveries: Count | None = _setting(
        None,
        "deliveries",
        "The most one push task sends, whatever its targets; not set = what their type says, see below.",
        ge=1,
    )
    chunk_max_bytes: Size | None = _setting(
        None,
        "bytes",
        "The most payload one push task holds, whatever its targets; not set = what their type says.",
        ge=1024,
    )
    buffer_range_events: Count = _setting(
        lambda data: 25_000 if _is_s3(data) else 10_000,
        "events",
        "How many events buffer lands and records at a time: what a crash makes it read again. In S3 25000.",
        ge=1,
    )
    segment_answers: Count = _setting(
        lambda data: 5_000 if _is_s3(data) else 2_000,
        "answers",
        "After so many answers push writes them down: the most that a crash sends again. In an S3 store 5000.",
        ge=1,
    )
    segment_seconds: Seconds = _setting(
        lambda data: 12.0 if _is_s3(data) else 1.0,  # twice in a push budget at most, if answers come soon
        "seconds",
        "After so long push writes down its answers and checks its claim: all that a crash sends again. In S3 12s.",
        gt=0,
        le=60,
    )
    disk_free_min_bytes: Size = _setting(
        512 * MIB,
        "bytes",
        "With less free space listen plans no new batch: the ones under way must be able to finish.",
        ge=0,
    )
    disk_free_resume_bytes: Size = _setting(
        lambda data: 2 * data["disk_free_min_bytes"],
        "bytes",
        "With so much free space listen goes on after that; more than the least, so that it does not stop at once.",
        ge=0,
    )
    replay_wait_seconds: Seconds = _setting(
        6 * 3600.0,
        "seconds",
        "How long a run of replay_archive waits for its replay, which it then pauses; a reprocessed run goes on.",
        gt=0,
        le=30 * DAY,
    )
    retention_deliveries_seconds: Seconds = _setting(
        30 * DAY,
        "seconds",
        "How long deliveries, outcomes and settlements are kept; at most as long as the archive of their bus.",
        ge=DAY,
    )
    retention_dead_letters_seconds: Seconds = _setting(
        90 * DAY,
        "seconds",
        "How long dead letters are kept, and can be redriven; at least as long as the archive of their bus.",
        ge=DAY,
    )
    retention_manifests_seconds: Seconds = _setting(
        400 * DAY,
        "seconds",
        "How long manifests, the audit of record, and the history of rules are kept: a year, and time to look at it.",
        ge=DAY,
    )
    maintain_budget_seconds: Seconds = _setting(
        300.0,
        "seconds",
        "How long one run of maintain may remove what is past its retention; the next one goes on.",
        gt=0,
        le=3600,
    )
    retry_max_per_target: Count = _setting(
        100_000,
        "deliveries",
        "The most of one target that one retry run takes, but for what was parked together; if it is well.",
        ge=1,
    )
    idempotency_seconds: Seconds = _setting(
        DAY, "seconds", "How long the API keeps its answer to an idempotency key.", ge=60, le=30 * DAY
    )
    quality_malformed_rate: float = _setting(
        0.01, "share", "More malformed events of a bus in an hour fail its quality check.", ge=0, le=1
    )
    quality_duplicate_rate: float = _setting(
        0.05, "share", "More duplicate events of a bus in an hour fail its quality check.", ge=0, le=1
    )
    quality_dead_letter_rate: float = _setting(
        0.05,
        "share",
        "More dead letters of what was settled of a target in an hour fail its quality check.",
        ge=0,
        le=1,
    )
    quality_parked_rate: float = _setting(
        0.5, "share", "More deliveries of a target that their first try parks fail its quality check.", ge=0, le=1
    )
    quality_volume_tolerance: float = _setting(
        0.5,
        "share",
        "How far a volume may be below the least and above the most of the same hour of other days.",
        ge=0,
        le=10,
    )
    quality_history_days: Count = _setting(
        14,
        "days",
        "How many days back an hour's volumes are compared; fewer than 3 checked ones fail nothing.",
        ge=3,
        le=90,
    )
    allow_addresses: Networks = _setting(
        (),
        "CIDR blocks",
        "Addresses inside (private, loopback ...) that http targets may connect to; public ones always are allowed.",
    )
    spark_remote: Uri | None = _setting(
        None,
        "URL",
        "The Spark Connect server, sc://host:port, for the command line; not set = its own. DAGs use a connection.",
        repr=False,  # it may hold a token
    )

    @property
    def rule_cache(self) -> Path:
        """The folder in which rule files are known again; whoever removes it has them all read once more."""
        return self.home / "rule_cache"

    @model_validator(mode="after")
    def _check_sizes(self) -> Settings:
        if self.batch_max_bytes < self.event_max_bytes:
            raise ValueError("EVENTBRIDGE_BATCH_MAX_BYTES is below EVENTBRIDGE_EVENT_MAX_BYTES: one event must fit")
        if self.disk_free_resume_bytes < self.disk_free_min_bytes:
            raise ValueError("EVENTBRIDGE_DISK_FREE_RESUME_BYTES is below EVENTBRIDGE_DISK_FREE_MIN_BYTES")
        return self

    @classmethod
    def from_mapping(cls, environ: Mapping[str, str]) -> Settings:
        """Return the settings that `environ` (usually `os.environ`) gives; an empty value counts as absent.

        Raises SettingsError listing every mistake: a value out of range, an unknown name (with the nearest one).
        """
        written = {name: value for name, value in environ.items() if is_setting_name(name) and value != ""}
        given, mistakes = with_ledger_url(written)
        known = {name.removeprefix(PREFIX).lower(): value for name, value in given.items()}
        mistakes += [unknown_setting(name, cls.model_fields) for name in sorted(given) if not _is_setting(name)]
        try:
            settings = cls.model_validate({name: value for name, value in known.items() if name in cls.model_fields})
        except ValidationError as error:
            mistakes += setting_mistakes(error, cls.model_fields)
        if mistakes:
            raise SettingsError("\n".join(mistakes))
        return settings


def _is_setting(name: str) -> bool:
    return name == name.upper() and name.removeprefix(PREFIX).lower() in Settings.model_fields
