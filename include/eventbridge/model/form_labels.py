"""Defines the labels of the fields that the page's forms share with the forms of DAGs, so that both say the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_RATE: Final = "Maximum deliveries per second"

#: The labels of the fields of a replay, by name.
REPLAY_LABELS: Final[Mapping[str, str]] = {
    "bus": "Bus",
    "from": "From",
    "to": "To",
    "rules": "Rules",
    "targets": "Targets",
    "pattern": "Only events that match this pattern, in JSON",
    "sql": "Only events that meet this SQL condition",
    "as_of": "Rules to use",
    "ids": "Delivery ids",
    "skip_delivered": "Skip deliveries that succeeded before",
    "rate": _RATE,
}

#: The labels of the values of a replay's `as_of`, and of its `ids`; the first one is the default.
AS_OF_LABELS: Final[Mapping[str, str]] = {"current": "current rules", "original": "rules that routed the events"}
IDS_LABELS: Final[Mapping[str, str]] = {"new": "new ids", "same": "original ids"}

#: The labels of the fields of a redrive, by name; the first six choose dead letters.
REDRIVE_LABELS: Final[Mapping[str, str]] = {
    "rule": "Rule",
    "target": "Target",
    "reason": "Reason",
    "error": "Error text",
    "from": "Last attempt from",
    "to": "Last attempt before",
    "rate": _RATE,
    "retransform": "Route with the current rules",
    "again": "Include those redriven before",
}
