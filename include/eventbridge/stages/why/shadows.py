"""What shadows did not take: in the reconciliation it is dealt with as if it were delivered, and a person is told
otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from eventbridge.model.batch import Batch
from eventbridge.model.outcome import SHADOW_FAILED, SHADOW_NOT_SENT
from eventbridge.model.why import Step
from eventbridge.stages.runtime.runtime import Runtime


def shadows_of(runtime: Runtime, batch: Batch) -> frozenset[tuple[str, str]]:
    """Return the targets that were shadows in a batch; what is pending or redriven was routed to real ones."""
    return frozenset(runtime.rules_of(batch).shadows()) if batch.routes else frozenset()


def failed_shadow(
    shadows: frozenset[tuple[str, str]], row: Mapping[str, Any], attempt: Mapping[str, Any] | None
) -> str | None:
    """Return why a shadow did not take a delivery, by its row and its last attempt; None if it did, or is none."""
    if (row["rule"], row["target"]) not in shadows:
        return None
    if attempt is not None and attempt["sent"]:
        code = attempt["code"]
        if code is not None:
            return None if 200 <= code < 300 else f"HTTP {code}"
        return attempt["error_class"] and str(attempt["error_class"])
    return str(row["reason"]) if row["reason"] in (SHADOW_FAILED, SHADOW_NOT_SENT) else None


def as_shadow(step: Step, failed: str | None) -> Step:
    """Return a step as that of a shadow, if it failed."""
    return step if failed is None else replace(step, outcome="shadow")
