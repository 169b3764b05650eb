"""Collects the metrics of owners: their usage and their quotas."""

from __future__ import annotations

from collections.abc import Iterator

from eventbridge.model.stat import Family, Sample
from eventbridge.rules import RuleSet
from eventbridge.runtime.owner_quota import owner_statuses
from eventbridge.runtime.runtime import Runtime

_TEXTS = {
    "pending": "Deliveries of an owner's rules that wait, where there is a quota.",
    "pending_max": "With so many waiting its rules' shares of batches are deferred.",
    "stored": "Bytes that an owner's buses have in the store, where there is a quota.",
    "stored_bytes": "With so many in the store no events are taken from an owner's buses.",
}
_NAMES = {"stored": "stored_bytes", "stored_bytes": "stored_quota_bytes"}


def owner_metrics(runtime: Runtime, rules: RuleSet) -> Iterator[Family]:
    """Yield the usage and quotas of owners with quotas; families without samples if no owner has one."""
    found = owner_statuses(runtime, rules)
    for field, text in _TEXTS.items():
        quota = "pending_max" if field.startswith("pending") else "stored_bytes"
        samples = [Sample((each.owner,), float(getattr(each, field))) for each in found if getattr(each, quota)]
        yield Family(f"eventbridge_owner_{_NAMES.get(field, field)}", "gauge", text, ("owner",), tuple(samples))
