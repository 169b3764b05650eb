"""`shadow_of`: gets the same events, is tried once, and its failures have no consequences; all is reconciled."""

from __future__ import annotations

from collections import Counter

import pytest
from pipeline.delivering import REFUSED, RunningClock, Sending, events_on_operations_bus, http
from stored import dead_letters

from eventbridge.errors import UserError
from eventbridge.repair.audit import audit
from eventbridge.views.shadow import shadow_reports


def shadow(url: str, **fields: object) -> str:
    """Return a shadow of the target `crm`, as flow YAML."""
    return (
        f'{{type: http, url: "{url}", allow_http: true, timeout: 1s, shadow_of: crm'
        + "".join(f", {name}: {value}" for name, value in fields.items())
        + "}"
    )


@pytest.mark.parametrize("url", [REFUSED, "/status/503", "/status/400", "/status/410", "/status/429"])
def test_whatever_a_shadow_responds_it_is_tried_once(sending: Sending, clock: RunningClock, url: str) -> None:
    """No retry, no dead letter, nothing against the target, for any number of failures; its target is served."""
    runtime = sending.begin(40, crm="/healthy/crm", mirror=shadow(url))
    sending.deliver()
    clock.advance(7200)
    sending.publish(1)
    sending.deliver()

    assert list(dead_letters(runtime)) == []
    assert runtime.ledger.pending.find() == []
    assert [
        s.state for s in runtime.ledger.targets.statuses().values() if s.target == "mirror" and s.state != "ok"
    ] == []
    assert [event for event in events_on_operations_bus(sending) if event["data"].get("target") == "mirror"] == []
    reconciliation = audit(runtime)
    assert reconciliation.differences == ()
    assert reconciliation.deliveries["orders/mirror"] == {
        "matched": 41,
        "delivered": 41,
        "dead_lettered": 0,
        "pending": 0,
    }
    (report,) = shadow_reports(runtime, "orders", "1d", None, 3)
    assert (report.compared, report.other_outputs, report.failed, report.not_sent) == (41, 0, 41, 0)
    assert (report.responded, report.other_responses, len(report.samples)) == (41, 41, 3)


def test_failed_transforms_and_pauses_of_a_shadow_are_settled_unsent(sending: Sending, clock: RunningClock) -> None:
    """A paused shadow gets nothing later; a transform that fails is counted, and no dead letter."""
    missing = "{form: JSONPATH, value: $.data.nowhere, missing: error}"
    runtime = sending.begin(3, crm="/healthy/crm", mirror=shadow("/healthy/mirror", transform=missing))
    sending.deliver()

    assert list(dead_letters(runtime)) == []
    assert audit(runtime).differences == ()
    (report,) = shadow_reports(runtime, "orders", "1d", None, 9)
    assert (report.compared, report.other_outputs, report.not_sent) == (3, 3, 3)
    assert report.samples[0].shadow.startswith("transform_failed: ")
    assert {request["path"] for request in sending.requests()} == {"/healthy/crm"}


def test_a_shadow_with_another_output_is_distinguished(sending: Sending) -> None:
    """The same results, other payloads: each of them is a difference with both texts."""
    constant = "{form: CONSTANT, value: {new: 1}}"
    runtime = sending.begin(2, crm="/healthy/crm", mirror=shadow("/healthy/mirror", transform=constant))
    sending.deliver()

    (report,) = shadow_reports(runtime, "orders", "1h", None, 9)
    assert (report.compared, report.other_outputs, report.other_responses, report.failed) == (2, 2, 0, 0)
    assert {each.shadow for each in report.samples} == {'{"new":1}'}
    assert audit(runtime).differences == ()


def test_a_rule_without_shadows_has_nothing_to_compare(sending: Sending) -> None:
    """It is said, with the remedy."""
    runtime = sending.begin(1, crm="/healthy/crm")

    with pytest.raises(UserError, match="shadow_of"):
        shadow_reports(runtime, "orders", "1h", None, 3)


def test_a_delivery_pending_before_its_target_became_a_shadow_is_delivered(
    sending: Sending, clock: RunningClock
) -> None:
    """It was routed to a real target: it is tried again as ever, and never settled unsent."""
    runtime = sending.begin(12, crm=http(REFUSED))
    sending.deliver()
    assert sum(row.count for row in runtime.ledger.pending.find()) == 12
    for url in (REFUSED, "/healthy/crm"):
        sending.rules(new="/healthy/new", crm=shadow(url).replace("shadow_of: crm", "shadow_of: new"))
        clock.advance(3600)
        sending.deliver()

    for _ in range(4):
        clock.advance(3600)
        sending.deliver()

    assert Counter(request["path"] for request in sending.requests()) == {"/healthy/crm": 12}
    assert list(dead_letters(runtime)) == []
    assert audit(runtime).differences == ()


def test_a_target_that_was_degraded_is_asked_again_once_it_is_a_shadow(sending: Sending, clock: RunningClock) -> None:
    """Nothing of a shadow is pending, so no probe would ever close a breaker that was left open."""
    runtime = sending.begin(12, crm=http(REFUSED))
    sending.deliver()
    assert [each.state for each in runtime.ledger.targets.statuses().values()] == ["degraded"]
    sending.rules(new="/healthy/new", crm=shadow("/healthy/crm").replace("shadow_of: crm", "shadow_of: new"))
    sending.publish(5)

    sending.deliver_batch()

    assert Counter(request["path"] for request in sending.requests()) == {"/healthy/crm": 5, "/healthy/new": 5}
