"""The settings of one installation, from EVENTBRIDGE_* variables; an entry point builds them once and passes them on.

Each part defines the unit and reason of its fields; docs/settings.md has the same text.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import ConfigDict, ValidationError, model_validator

from eventbridge.config.batch_settings import BatchSettings
from eventbridge.config.indirect import with_ledger_url
from eventbridge.config.place_settings import PlaceSettings
from eventbridge.config.quality_settings import QualitySettings
from eventbridge.config.setting_errors import PREFIX as PREFIX
from eventbridge.config.setting_errors import is_setting_name, setting_errors, unknown_setting
from eventbridge.config.setting_types import Count, Networks, Seconds, Uri
from eventbridge.config.setting_types import setting as _setting
from eventbridge.config.store_settings import StoreSettings
from eventbridge.errors import SettingsError

DAY = 86_400.0


class Settings(QualitySettings, StoreSettings, BatchSettings, PlaceSettings):  # later bases are read first
    """All settings: locations, sizes and limits.

    Seconds may be written as `60` or `1m`, bytes as `1048576` or `1MiB`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    replay_timeout: Seconds = _setting(
        6 * 3600.0,
        "seconds",
        "How long a run of eventbridge_replay_archive waits for its replay, which it then pauses; "
        "a reprocessed run continues.",
        gt=0,
        le=30 * DAY,
    )
    retry_max_per_target: Count = _setting(
        100_000,
        "deliveries",
        "The most of one target that one retry run takes, but for what was pending together; if it is well.",
        ge=1,
    )
    idempotency_retention: Seconds = _setting(
        DAY, "seconds", "How long the API keeps its response to an idempotency key.", ge=60, le=30 * DAY
    )
    heartbeat_connection: str | None = _setting(
        None,
        "connection",
        "The connection that says where Airflow sends a heartbeat each minute; not set = it does not.",
    )
    allow_addresses: Networks = _setting(
        (),
        "CIDR blocks",
        "Addresses inside (private, loopback ...) that http targets may connect to; public ones always are allowed.",
    )
    spark_remote: Uri | None = _setting(
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
