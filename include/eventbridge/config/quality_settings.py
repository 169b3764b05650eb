"""Settings of the hourly quality check; a part of `Settings`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from eventbridge.config.setting_types import Count
from eventbridge.config.setting_types import setting as _setting


class QualitySettings(BaseModel):
    """The limits of the hourly check of a bus and of a target."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
    quality_pending_rate: float = _setting(
        0.5,
        "share",
        "More deliveries of a target that their first try leaves pending fail its quality check.",
        ge=0,
        le=1,
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
