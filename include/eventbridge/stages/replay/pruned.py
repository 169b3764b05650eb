"""Refuses a replay of what is past its retention: it would silently be a replay of the rest."""

from __future__ import annotations

from datetime import datetime, timedelta

from eventbridge.errors import UserError
from eventbridge.stages.replay.wish import Wish
from eventbridge.stages.runtime.runtime import Runtime


def refuse_pruned(work: Runtime, wish: Wish, now: datetime) -> None:
    """Raise UserError if batches of a wish's time lost their archive or, if it asks for them, their outcomes."""
    gone = work.ledger.pruned_at(wish.bus, wish.since, wish.until, "archive")
    if gone is not None:
        raise UserError(
            f"the archive of bus {wish.bus!r} up to {gone:%Y-%m-%dT%H:%M:%S} (UTC) is past its retention and was "
            "removed: ask for events from a later time. `retention` of the bus in its rule file says how long"
        )
    oldest = now - timedelta(seconds=work.settings.retention_manifests_seconds)
    if wish.until <= oldest:
        raise UserError(
            f"nothing is kept of batches planned before {oldest:%Y-%m-%dT%H:%M:%S} (UTC): their retention is over. "
            "`retention` of the bus in its rule file says how long its archive is kept"
        )
    gone = work.ledger.pruned_at(wish.bus, wish.since, wish.until, "all") if wish.by_target else None
    if gone is not None:
        raise UserError(
            f"what became of deliveries up to {gone:%Y-%m-%dT%H:%M:%S} (UTC) is past its retention, "
            "EVENTBRIDGE_RETENTION_DELIVERIES_SECONDS: ask for events from a later time, or choose neither by SQL "
            "nor by what was delivered"
        )
