"""The header that marks a replayed delivery."""

from __future__ import annotations

import json

from eventbridge.model.redelivery import REPLAY_ID_HEADER


def with_replay_id(headers: str | None, replay_id: str) -> str | None:
    """Return a delivery's further headers, a JSON object or None, with its replay id, if any."""
    if not replay_id:
        return headers
    return json.dumps({**(json.loads(headers) if headers else {}), REPLAY_ID_HEADER: replay_id})
