"""The handshake of a target states the rate in force, which an override may change."""

from __future__ import annotations

from pipeline.delivering import Sending, http
from unit.targets.test_http_handshake import AT_60, ORIGIN, Service
from unit.targets.test_http_handshake import service as service

from eventbridge.control.try_target import check_target, send_event


def test_a_target_agrees_to_the_rate_of_an_override(sending: Sending, service: Service) -> None:
    """Pushes, checks and single events ask for the overriding rate, not for that of the rule file."""
    service.headers = AT_60
    crm = http(service.url, handshake=f"{{origin: {ORIGIN}}}", rate="600/m")
    runtime = sending.begin(2, crm=crm)
    refusal = check_target(runtime, "orders", "crm")
    assert refusal is not None
    assert "600 requests a minute are in force" in refusal
    assert "override" in refusal

    runtime.ledger.overrides.set("orders", "crm", "rate", "1.0", "me")
    sending.deliver()

    assert check_target(runtime, "orders", "crm") is None
    assert send_event(runtime, "orders", "crm", sending.order(9)).code == 200
    assert service.methods.count("POST") == 3
    asked = [headers["webhook-request-rate"] for method, headers in service.seen if method == "OPTIONS"]
    assert asked == ["600", "60", "60"]
