"""Rule files with mistakes in them: the batch under way is finished by its own rules, and no new one is planned."""

from __future__ import annotations

from typing import Any

import pytest
from stages.delivering import RUNNER, Sending, routed

from eventbridge import fault_points
from eventbridge.errors import BusError, RuleFileError
from eventbridge.stages.ingest.listen import listen
from eventbridge.stages.operate.audit import audit

BROKEN = "rules: ["


def test_a_batch_under_way_is_finished_while_the_rule_files_are_broken(sending: Sending) -> None:
    """From any stage on; the next batch is refused with the mistakes, and planned once they are mended."""
    work = sending.begin(5, crm="/healthy/crm")
    batch_id = listen(work, RUNNER)
    sending.write(BROKEN)
    sending.publish(4)

    assert sending.deliver_batch() == batch_id
    assert len(sending.requests()) == 5
    with pytest.raises(RuleFileError):
        listen(work, RUNNER)
    sending.rules(crm="/healthy/crm")
    sending.deliver_batch()
    assert len(sending.requests()) == 9
    assert audit(work).differences == ()


def test_a_bus_that_waits_for_its_offsets_stops_no_batch(
    sending: Sending, site: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What the bus must be told again needs today's rules: it is told later, and the batch goes on."""
    work = sending.begin(1, crm="/healthy/crm")
    fault_points.install(_bus_refuses)
    sending.deliver_batch()
    sending.publish(1)
    batch = routed(work)
    fault_points.install(None)
    sending.write(BROKEN)

    assert listen(work, RUNNER) == batch.batch_id
    assert "still does not take the offsets" in caplog.text
    sending.rules(crm="/healthy/crm")
    sending.deliver_batch()
    with site.bus() as bus:
        assert bus.committed(RUNNER) == work.ledger.committed_offsets(RUNNER)


def _bus_refuses(point: str) -> None:
    if point == "bus.commit":
        raise BusError("the bus is down")
