"""While rule files have errors, the current batch is finished with its own rules, and no new one is planned."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest
from pipeline.delivering import RUNNER, Sending, routed

from eventbridge import fault_points
from eventbridge.errors import BusError, NotFoundError, RuleFileError
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.repair.audit import audit
from eventbridge.rules.operations_bus import OPERATIONS_BUS
from eventbridge.testing.sources import messages_of
from eventbridge.views.rules import rule_history, rule_versions, rules_at
from eventbridge.views.status import status

BROKEN = "rules: ["


def test_a_batch_in_progress_is_finished_while_the_rule_files_are_broken(sending: Sending) -> None:
    """From any stage on; and the next batch takes the last good rules."""
    runtime = sending.begin(5, crm="/healthy/crm")
    batch_id = listen(runtime, RUNNER)
    sending.write(BROKEN)
    sending.publish(4)

    assert sending.deliver_batch() == batch_id
    assert len(sending.requests()) == 5
    assert sending.deliver_batch(), "the last good rules go on"
    assert len(sending.requests()) == 9
    assert audit(runtime).differences == ()


def test_a_bus_that_waits_for_its_offsets_stops_no_batch(
    sending: Sending, site: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A bus notice that is due needs the current rules: it is sent later, and the batch continues."""
    runtime = sending.begin(1, crm="/healthy/crm")
    fault_points.install(_bus_refuses)
    sending.deliver_batch()
    sending.publish(1)
    batch = routed(runtime)
    fault_points.install(None)
    sending.write(BROKEN)

    assert listen(runtime, RUNNER) == batch.batch_id
    assert "still does not accept the offsets" in caplog.text
    sending.rules(crm="/healthy/crm")
    sending.deliver_batch()
    with site.bus() as bus:
        assert bus.committed(RUNNER) == runtime.ledger.offsets.committed(RUNNER)


def _bus_refuses(point: str) -> None:
    if point == "bus.commit":
        raise BusError("the bus is down")


def test_without_any_good_rules_before_the_errors_are_raised(sending: Sending) -> None:
    """A first batch has no valid rules to use."""
    sending.write(BROKEN)

    with pytest.raises(RuleFileError):
        listen(sending.runtime, RUNNER)


def test_errors_are_reported_once_with_file_and_line_and_gone_once_fixed(sending: Sending) -> None:
    """`status` has them, and one operational event, however many batches continue with the last good rules."""
    runtime = sending.begin(2, crm="/healthy/crm")
    sending.deliver_batch()
    sending.write(BROKEN)
    for _ in range(2):
        sending.publish(2)
        assert sending.deliver_batch()

    (one,) = status(runtime).errors
    with closing(runtime.open_source(OPERATIONS_BUS)) as bus:
        (partition,) = bus.partitions()
        reported = [json.loads(message.body) for message in messages_of(bus.read(partition, 0, bus.end(partition)))]
    (event,) = [each for each in reported if each["type"] == "rules.invalid"]
    assert event["data"]["first"] == [str(one)]
    assert f"{one.file}:{one.line}:" in str(one)

    sending.rules(crm="/healthy/other")
    sending.publish(3)
    sending.deliver()
    assert status(runtime).errors == ()
    assert [request["path"] for request in sending.requests()] == ["/healthy/crm"] * 6 + ["/healthy/other"] * 3


def test_a_rules_history_names_each_version_and_when_it_went(sending: Sending) -> None:
    """Each change that a batch was planned with is kept, and what a version said can be shown."""
    runtime = sending.begin(1, crm="/healthy/crm")
    sending.deliver_batch()
    first = runtime.rule_files().rules["orders"].version
    sending.rules(crm="/healthy/other")
    sending.publish(1)
    sending.deliver_batch()
    sending.publish(1)
    sending.deliver_batch()

    newest, oldest = rule_history(runtime, "orders", 10)
    gone, first_version = rule_versions(runtime, "orders")
    assert (gone.version, first_version.version, first_version.diff) == (newest.version, oldest.version, ())
    assert any(line.startswith("-") and "crm" in line for line in gone.diff)

    assert (oldest.version, newest.version) == (first, runtime.rule_files().rules["orders"].version)
    was = rules_at(runtime, "orders", first[:6]).rules["orders"].targets["crm"]
    assert was.url.endswith("/healthy/crm")  # type: ignore[attr-defined]
    with pytest.raises(NotFoundError, match=first):
        rules_at(runtime, "orders", "zz")
