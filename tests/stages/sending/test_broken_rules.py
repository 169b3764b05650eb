"""Rule files with mistakes in them: the batch under way is finished by its own rules, and no new one is planned."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from stages.delivering import RUNNER, http, routed, rules

from eventbridge import faults
from eventbridge.errors import BusError, RuleFileError
from eventbridge.stages.audit import audit
from eventbridge.stages.deliver import deliver_batch
from eventbridge.stages.listen import listen
from eventbridge.stages.route_in_process import InProcessRouter
from eventbridge.testing.receiver import Receiver

Order = Callable[..., bytes]
BROKEN = "rules: ["


def _deliver(work: Any) -> str | None:
    return deliver_batch(work, RUNNER, InProcessRouter(work.store), threading.Event())


def test_a_batch_under_way_is_finished_while_the_rule_files_are_broken(
    site: Any, order: Order, receiver: Receiver
) -> None:
    """From any stage on; the next batch is refused with the mistakes, and planned once they are mended."""
    whole = rules(crm=http(receiver.url("/healthy/crm")))
    site.write_rules(whole)
    site.publish(*(order(number) for number in range(5)))
    work = site.work
    batch_id = listen(work, RUNNER)
    site.write_rules(BROKEN)
    site.publish(*(order(number) for number in range(5, 9)))

    assert _deliver(work) == batch_id
    assert len(receiver.requests()) == 5
    with pytest.raises(RuleFileError):
        listen(work, RUNNER)
    site.write_rules(whole)
    _deliver(work)
    assert len(receiver.requests()) == 9
    assert audit(work).differences == ()


def test_a_bus_that_waits_for_its_offsets_stops_no_batch(
    site: Any, order: Order, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """What the bus must be told again needs today's rules: it is told later, and the batch goes on."""
    whole = rules(crm=http(receiver.url("/healthy/crm")))
    site.write_rules(whole)
    site.publish(order(1))
    work = site.work
    faults.install(_bus_refuses)
    _deliver(work)
    site.publish(order(2))
    batch = routed(work)
    faults.install(None)
    site.write_rules(BROKEN)

    assert listen(work, RUNNER) == batch.batch_id
    assert "still does not take the offsets" in caplog.text
    site.write_rules(whole)
    _deliver(work)
    with site.bus() as bus:
        assert bus.committed(RUNNER) == work.ledger.committed_offsets(RUNNER)


def _bus_refuses(point: str) -> None:
    if point == "bus.commit":
        raise BusError("the bus is down")
