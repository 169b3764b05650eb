"""`targets send` sends the same request as a delivery of the same event."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from demo.receiver import Receiver
from pipeline.delivering import Sending, http

from eventbridge.control.try_target import send_event

Order = Callable[..., bytes]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """Return a receiver that records headers, too."""
    with Receiver(tmp_path_factory.mktemp("receiver") / "requests.jsonl", whole=True) as running:
        yield running


@pytest.mark.parametrize("content_mode", ["structured", "binary", "data"])
def test_one_event_is_sent_with_the_headers_of_a_delivery(sending: Sending, order: Order, content_mode: str) -> None:
    """What a target gets by hand differs from the delivery of the same event in its id and time alone."""
    traced = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "vendor=1"}
    body = order("1", **traced)
    sending.begin(body, crm=http("/healthy/crm", content_mode=content_mode))
    sending.deliver()
    send_event(sending.runtime, "orders", "crm", body)

    delivered, by_hand = [dict(request["headers"]) for request in sending.requests()]
    for headers in (delivered, by_hand):
        assert headers.pop("webhook-id")
        assert headers.pop("webhook-timestamp")
    assert by_hand == delivered
    assert {name: by_hand.get(name) for name in traced} == traced
