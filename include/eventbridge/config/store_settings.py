"""Settings of watermarks and retention; a part of `Settings`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from eventbridge.config.setting_types import Seconds, Size
from eventbridge.config.setting_types import setting as _setting

MIB = 1 << 20
DAY = 86_400.0


class StoreSettings(BaseModel):
    """The disk watermarks of the store, and the limits of retention."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    disk_min_free_size: Size = _setting(
        512 * MIB,
        "bytes",
        "With less free space listen plans no new batch: the ones under way must be able to finish.",
        ge=0,
    )
    disk_resume_free_size: Size = _setting(
        lambda data: 2 * data["disk_min_free_size"],
        "bytes",
        "With so much free space listen goes on after that; more than the least, so that it does not stop at once.",
        ge=0,
    )
    store_max_size: Size | None = _setting(
        None,
        "bytes",
        "The largest size of the store: with so much in it listen plans no new batch; not set = as the disk allows.",
        ge=1,
    )
    store_resume_size: Size | None = _setting(
        lambda data: None if data["store_max_size"] is None else data["store_max_size"] * 19 // 20,
        "bytes",
        "With no more than this in the store listen goes on after that; not set = 95 % of the quota.",
        ge=0,
    )
    retention_deliveries: Seconds = _setting(
        30 * DAY,
        "seconds",
        "How long deliveries, outcomes and settlements are kept; at most as long as the archive of their bus.",
        ge=DAY,
    )
    retention_dead_letters: Seconds = _setting(
        90 * DAY,
        "seconds",
        "How long dead letters are kept, and can be redriven; at least as long as the archive of their bus.",
        ge=DAY,
    )
    retention_manifests: Seconds = _setting(
        400 * DAY,
        "seconds",
        "How long manifests, the audit of record, and the history of rules are kept: a year, and time to look at it.",
        ge=DAY,
    )
    maintain_timeout: Seconds = _setting(
        300.0,
        "seconds",
        "How long one run of maintain may remove what is past its retention; the next one goes on.",
        gt=0,
        le=3600,
    )
