"""Each request that reaches an http target is recorded as one attempt, whatever happens to its connection."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest
from pipeline.delivering import Sending, http, segment_rows

from eventbridge.repair.audit import audit

RESPONDED, LEFT = 24, 6
CLOSED = "the target closed the connection before a response came"


@pytest.fixture(params=["batch", "streaming"])
def mode(request: pytest.FixtureRequest) -> str:
    """Deliver in batches, and event by event."""
    return str(request.param)


def test_a_request_whose_connection_closes_without_a_response_is_not_repeated(sending: Sending) -> None:
    """Connections that were used before close after they took a request: one request, one failed attempt, the last."""
    crm = http(f"/leave-after/{RESPONDED}/{sending.mode}", max_in_flight=6, retry="{policy: custom, max_retries: 0}")
    runtime = sending.begin(RESPONDED + LEFT, crm=crm)

    sending.deliver()

    received = Counter(request["webhook_id"] for request in sending.requests())
    rows = [row for batch in runtime.ledger.batches.find(limit=None) for row in segment_rows(runtime, batch.batch_id)]
    assert Counter(received.values()) == {1: RESPONDED + LEFT}
    assert {str(UUID(bytes=row["delivery_id"])) for row in rows} == set(received)
    assert Counter((row["sent"], row["attempt"], row["error_class"]) for row in rows) == {
        (True, 1, None): RESPONDED,
        (True, 1, "NetworkError"): LEFT,
    }
    assert {row["error"] for row in rows} == {None, CLOSED}
    assert audit(runtime).differences == ()
