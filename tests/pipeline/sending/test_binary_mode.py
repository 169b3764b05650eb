"""Binary content mode: what a target receives of events with text, bytes, or no data, and under which content type."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from demo.receiver import Receiver
from pipeline.delivering import Sending, http

from eventbridge.control.try_target import as_curl, curl_call
from eventbridge.event.bindings import event_from_binary

TYPED = "text/plain; charset=iso-8859-1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """A receiver that records headers and bodies."""
    with Receiver(tmp_path_factory.mktemp("receiver") / "requests.jsonl", whole=True) as running:
        yield running


def came(event_id: str, body: bytes | None, media_type: str = "") -> bytes:
    """Return an event as it lies on a bus that had it in binary mode."""
    named = {"specversion": "1.0", "id": event_id, "source": "/shop", "type": "order.placed"}
    headers = [(f"ce_{name}", value.encode()) for name, value in named.items()]
    return event_from_binary([*headers, *([("content-type", media_type.encode())] if media_type else [])], body)


def test_a_target_receives_the_bytes_that_came(sending: Sending) -> None:
    """Text in its charset with its own content type, bytes as such, and nothing of no data."""
    bodies = [
        came("text", b"caf\xe9", TYPED),
        came("other", b"\xc3\xa9", TYPED),
        came("untyped", b"hello"),
        came("none", None),
        came("json", b'{"a": 1}', "application/json"),
    ]
    sending.begin(*bodies, crm=http("/healthy/binary", content_mode="binary"))
    sending.deliver()

    received = {
        each["headers"]["ce-id"]: (each["headers"].get("content-type"), each["body"]) for each in sending.requests()
    }
    assert received == {
        "text": (TYPED, b"caf\xe9"),
        "other": (TYPED, b"\xc3\xa9"),
        "untyped": ("application/octet-stream", b"hello"),
        "none": (None, b""),
        "json": ("application/json", b'{"a":1}'),
    }


def test_a_call_of_curl_sends_no_content_type_either(sending: Sending) -> None:
    """Curl would send one of its own; a header with an empty value is sent empty, as the target does."""
    sending.begin(crm=http("/healthy/crm", content_mode="binary"))

    call = curl_call(sending.runtime, "orders", "crm", came("none", None)).call

    assert "-H content-type: \\\n" in call
    assert as_curl("POST", "", [("content-type", "text/xml"), ("x", "")], "").splitlines()[1:3] == [
        "  -H 'content-type: text/xml' \\",
        "  -H 'x;' \\",
    ]


def test_a_call_of_curl_has_the_method_and_the_headers_of_the_rule(sending: Sending) -> None:
    """It sends what the target sends, except for credentials; a compressed body is a note."""
    sending.begin(
        crm=http(
            "/healthy/crm", method="PUT", headers="{X-Tenant: shop}", signature="{headers: svix}", compression="gzip"
        )
    )

    made = curl_call(sending.runtime, "orders", "crm", came("none", None), "0190aaaa-0000-8000-8000-000000000001")

    assert made.call.startswith("curl -X PUT http://127.0.0.1:")
    assert "-H 'X-Tenant: shop'" in made.call
    assert "-H 'svix-id: 0190aaaa-0000-8000-8000-000000000001'" in made.call
    assert made.notes == ("The target gets a compressed body; this call sends it as it is",)
