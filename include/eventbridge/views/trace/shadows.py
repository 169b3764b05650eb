"""Failures of shadows: the reconciliation counts their deliveries as delivered, and `why` shows the failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from eventbridge.model.batch import Batch
from eventbridge.model.outcome import SHADOW_FAILED, SHADOW_NOT_SENT
from eventbridge.model.why import Step
from eventbridge.runtime.runtime import Runtime


def shadows_of(runtime: Runtime, batch: Batch) -> frozenset[tuple[str, str]]:
    """Return the shadow targets of a batch; pending or redriven deliveries were routed to real ones."""
    return frozenset(runtime.rules_of(batch).shadows()) if batch.routes else frozenset()


def failed_shadow(
    shadows: frozenset[tuple[str, str]], row: Mapping[str, Any], attempt: Mapping[str, Any] | None
) -> str | None:
    """Return why a shadow failed, from the delivery's row and last attempt; None if it did not, or is no shadow."""
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
