"""Stops and resumes intake by what is free in the store."""

from __future__ import annotations

import logging

from eventbridge.config.quantities import write_size
from eventbridge.decision import water_lines
from eventbridge.decision.water_lines import WaterLines
from eventbridge.stages.notify.publish import publish_operational_events
from eventbridge.stages.runtime.runtime import Runtime

log = logging.getLogger(__name__)


def is_intake_stopped(work: Runtime) -> bool:
    """Return whether no new events are to be taken now; notes in the ledger, and tells, when that changes."""
    lines = WaterLines(work.settings.disk_free_min_bytes, work.settings.disk_free_resume_bytes)
    free = work.store.free_bytes()
    stop = work.ledger.intake_stop()
    is_stopped = water_lines.is_intake_stopped(stop is not None, free, lines)
    if is_stopped:
        reason = stop.reason if stop is not None else _reason(work, free or 0, lines)
        log.warning("no new batch is planned: %s", reason)
        changed = stop is None and work.ledger.stop_intake(reason)
    else:
        changed = stop is not None and work.ledger.resume_intake()
        if changed:
            log.warning("new batches are planned again: the store has %s bytes free", free)
    if changed:
        publish_operational_events(work)
    return is_stopped


def _reason(work: Runtime, free: int, lines: WaterLines) -> str:
    return (
        f"the store {work.store.uri} has {free:,} bytes free, less than EVENTBRIDGE_DISK_FREE_MIN_BYTES "
        f"({write_size(lines.low)}); it goes on from EVENTBRIDGE_DISK_FREE_RESUME_BYTES ({write_size(lines.high)}): "
        "free some space, or lower both"
    )
