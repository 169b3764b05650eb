"""The faults of an egress proxy are not those of the target: its breaker stays closed, and nothing is lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from connect_proxy import HANGS, ConnectProxy
from pipeline.delivering import RunningClock, Sending, http, segment_rows

from eventbridge.config.connection import connections_from_environment
from eventbridge.repair.audit import audit


def test_a_proxy_that_refuses_opens_no_breaker_and_loses_nothing(sending: Sending, clock: RunningClock) -> None:
    """Thirty failed attempts leave the target ok, and all are delivered once the proxy works."""
    with ConnectProxy(503) as proxy:
        uri = f"http://127.0.0.1:{proxy.port}/?egress_proxy=true"
        connections = connections_from_environment({"EVENTBRIDGE_CONN_EGRESS": uri})
        runtime = replace(sending.begin(30, crm=http("/healthy/proxied", proxy="egress")), connections=connections)
        sending.site.works[-1] = runtime
        batch_id = sending.deliver_batch()

        assert sending.requests() == []
        assert {status.state for status in runtime.ledger.targets.statuses().values()} <= {"ok"}
        assert batch_id is not None
        assert {row["error_class"] for row in segment_rows(runtime, batch_id)} == {"ProxyFailed"}

        proxy.status = None
        clock.advance(2 * 3600)
        sending.deliver()

    assert len({each["webhook_id"] for each in sending.requests()}) == 30
    found = audit(runtime)
    assert (found.differences, found.deliveries["orders/crm"]["delivered"]) == ((), 30)


def test_a_proxy_that_hangs_keeps_its_batch_waiting_for_one_timeout(sending: Sending, clock: RunningClock) -> None:
    """Nothing more is sent through it in this batch; the target stays ok, and all is delivered once the proxy works."""
    with ConnectProxy(HANGS) as proxy:
        uri = f"http://127.0.0.1:{proxy.port}/?egress_proxy=true"
        connections = connections_from_environment({"EVENTBRIDGE_CONN_EGRESS": uri})
        crm = http("/healthy/hanging", proxy="egress", max_in_flight=1)
        runtime = replace(sending.begin(8, crm=crm, note="/healthy/note"), connections=connections)
        sending.site.works[-1] = runtime
        sending.deliver_batch()

        assert len(proxy.connects) == 1
        assert {status.state for status in runtime.ledger.targets.statuses().values()} <= {"ok"}

        proxy.status = None
        clock.advance(2 * 3600)
        sending.deliver()

    got = Counter(each["path"] for each in sending.requests())
    assert got == {"/healthy/hanging": 8, "/healthy/note": 8}
    assert audit(runtime).differences == ()
