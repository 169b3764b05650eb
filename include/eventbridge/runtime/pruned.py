"""Refuses ranges of the archive that are past their retention: a result would silently cover only the rest."""

from __future__ import annotations

from datetime import datetime, timedelta

from eventbridge.errors import UserError
from eventbridge.runtime.runtime import Runtime


def refuse_pruned(runtime: Runtime, bus: str, since: datetime, until: datetime, *, outcomes: bool = False) -> None:
    """Raise UserError if batches of a bus and time range lost their archive or, with `outcomes`, their outcomes.

    `since` is included, `until` is not.
    """
    gone = runtime.ledger.pruned_at(bus, since, until, "archive")
    if gone is not None:
        raise UserError(
            f"the archive of bus {bus!r} up to {gone:%Y-%m-%dT%H:%M:%S} (UTC) is past its retention and was "
            "removed: ask for events from a later time. `retention` of the bus in its rule file says how long"
        )
    oldest = runtime.ledger.now() - timedelta(seconds=runtime.settings.retention_manifests)
    if until <= oldest:
        raise UserError(
            f"nothing is kept of batches planned before {oldest:%Y-%m-%dT%H:%M:%S} (UTC): their retention is over. "
            "`retention` of the bus in its rule file says how long its archive is kept"
        )
    gone = runtime.ledger.pruned_at(bus, since, until, "all") if outcomes else None
    if gone is not None:
        raise UserError(
            f"what became of deliveries up to {gone:%Y-%m-%dT%H:%M:%S} (UTC) is past its retention, "
            "EVENTBRIDGE_RETENTION_DELIVERIES: ask for events from a later time, or choose neither by SQL "
            "nor by what was delivered"
        )
