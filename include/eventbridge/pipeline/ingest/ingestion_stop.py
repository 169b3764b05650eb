"""Stops and resumes ingestion, replays and redrives according to the free space on the store's disk and in its
quota."""

from __future__ import annotations

import logging

from eventbridge.config.quantities import write_size
from eventbridge.model.storage import IngestionStop
from eventbridge.policy.capacity import FreeSpace, Watermarks, short_of
from eventbridge.runtime.operational_events import publish_operational_events
from eventbridge.runtime.quotas import room_in_quota
from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)


#: The seconds that a replay or redrive waits before it checks the free space again.
RECHECK_SECONDS = 5.0


def is_ingestion_stopped(runtime: Runtime, again: int = logging.WARNING) -> bool:
    """Return whether ingestion is stopped now, and record and publish each change.

    `again` is the log level if ingestion is still stopped for the same reason.
    """
    stop = runtime.ledger.ingestion.current_stop()
    short = short_of(_rooms(runtime), stop.cause if stop is not None else None)
    changed = False
    if stop is not None and (short is None or short.cause != stop.cause):
        changed = runtime.ledger.ingestion.resume()
        if changed:
            log.warning("there is free space again; no batches had been planned since %s: %s", stop.since, stop.reason)
        stop = None
    if short is not None:
        changed = _record_stop(runtime, stop, short, again) or changed
    if changed:
        publish_operational_events(runtime)
    return short is not None


def _rooms(runtime: Runtime) -> list[FreeSpace]:
    watermarks = Watermarks(runtime.settings.disk_min_free_size, runtime.settings.disk_resume_free_size)
    disk = FreeSpace("disk", runtime.store.free_bytes(), watermarks)
    quota = room_in_quota(runtime)
    return [disk] if quota is None else [disk, quota]


def _record_stop(runtime: Runtime, stop: IngestionStop | None, short: FreeSpace, again: int) -> bool:
    reason = stop.reason if stop is not None else _reason(runtime, short)
    log.log(again if stop is not None else logging.WARNING, "no new batch is planned: %s", reason)
    return stop is None and runtime.ledger.ingestion.stop(reason, short.cause)


def _reason(runtime: Runtime, short: FreeSpace) -> str:
    settings, free = runtime.settings, short.free or 0
    if short.cause == "disk":
        return (
            f"the store {runtime.store.uri} has {free:,} bytes free, less than EVENTBRIDGE_DISK_MIN_FREE_SIZE "
            f"({write_size(short.watermarks.low)}). Ingestion resumes at EVENTBRIDGE_DISK_RESUME_FREE_SIZE "
            f"({write_size(short.watermarks.high)}). Free some space, or lower both settings"
        )
    quota, resume = settings.store_max_size or 0, settings.store_resume_size or 0
    return (
        f"the store {runtime.store.uri} holds {quota - free:,} bytes, and EVENTBRIDGE_STORE_MAX_SIZE is "
        f"{write_size(quota)}. Ingestion resumes at EVENTBRIDGE_STORE_RESUME_SIZE ({write_size(resume)}). "
        "Shorten a retention and run `eventbridge maintain`, or raise both settings"
    )
