"""`POST /v1/hooks/{name}`: a signed webhook call becomes an event on its bus."""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import json
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from api.server import Installation, Server

HOOKS = """, webhooks: {
    code: {signature: github, connection: code, mapping: {subject: $.repository.name}},
    money: {signature: stripe, connection: money, mapping: {source: /stripe}},
    mail: {signature: standard, connection: nowhere},
    svix: {signature: standard, connection: svix},
    bare: {signature: github, connection: bare}}"""


@pytest.fixture(scope="module")
def hooked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with webhooks."""
    made = Installation(
        tmp_path_factory.mktemp("hooked"),
        more=HOOKS,
        EVENTBRIDGE_CONN_CODE="http://?signing_secret=key",
        EVENTBRIDGE_CONN_MONEY="http://?signing_secret=whsec_old%20whsec_new",
        EVENTBRIDGE_CONN_BARE="http://code.example",
        EVENTBRIDGE_CONN_SVIX="http://?signing_secret=whsec_a2V5",
    )
    with Server(made) as running:
        yield running


def github(body: bytes, secret: bytes = b"key") -> dict[str, str]:
    """Return the headers that GitHub would send."""
    digest = hmac.new(secret, body, hashlib.sha256).hexdigest()
    named = {"x-github-event": "push", "x-github-delivery": "72d3162e"}
    return {**named, "x-hub-signature-256": f"sha256={digest}", "content-type": "application/json"}


def stripe(body: bytes, at: int) -> dict[str, str]:
    """Return the headers that Stripe would send."""
    digest = hmac.new(b"whsec_new", f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return {"stripe-signature": f"t={at},v1={digest}", "content-type": "application/json"}


def standard(family: str, message: str, body: bytes) -> dict[str, str]:
    """Return the headers of Standard Webhooks (`webhook`), or of Svix (`svix`)."""
    at = int(time.time())
    digest = hmac.new(b"key", f"{message}.{at}.".encode() + body, hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {f"{family}-id": message, f"{family}-timestamp": str(at), f"{family}-signature": signature}


def event(server: Server, result: dict[str, Any]) -> dict[str, Any]:
    """Return the event that a result names."""
    return dict(json.loads(server.installation.bodies()[result["partition"], result["offset"]]))


def test_a_github_call_becomes_an_event(hooked: Server) -> None:
    """Id and type come from the headers, the subject from the mapping, the data from the body."""
    body = b'{"repository": {"name": "shop"}, "size": 1.10}'
    with hooked.client() as client:
        response = client.post("/v1/hooks/code", content=body, headers=github(body))

    assert response.status_code == 200, response.text
    made = event(hooked, response.json()["results"][0])
    assert (made["id"], made["type"], made["source"]) == ("72d3162e", "github.push", "/hooks/code")
    assert (made["subject"], made["data"]) == ("shop", {"repository": {"name": "shop"}, "size": 1.1})


def test_a_stripe_call_becomes_an_event(hooked: Server) -> None:
    """Id and type come from Stripe's event, the source from the mapping."""
    body = b'{"id": "evt_1", "type": "invoice.paid"}'
    with hooked.client() as client:
        response = client.post("/v1/hooks/money", content=body, headers=stripe(body, int(time.time())))

    assert response.status_code == 200, response.text
    made = event(hooked, response.json()["results"][0])
    assert (made["id"], made["type"], made["source"]) == ("evt_1", "invoice.paid", "/stripe")


def test_a_call_of_svix_is_one_of_standard_webhooks(hooked: Server) -> None:
    """Either family of headers is accepted, and its id is the event's; a call with headers of both is rejected."""
    body = b'{"type": "user.created"}'
    with hooked.client() as client:
        responses = [
            client.post("/v1/hooks/svix", content=body, headers=standard(family, f"msg_{family}", body))
            for family in ("svix", "webhook")
        ]
        mixed = client.post(
            "/v1/hooks/svix", content=body, headers=standard("svix", "a", body) | standard("webhook", "b", body)
        )

    assert [response.status_code for response in responses] == [200, 200]
    ids = [event(hooked, response.json()["results"][0])["id"] for response in responses]
    assert ids == ["msg_svix", "msg_webhook"]
    assert mixed.status_code == 403


def test_the_id_of_a_call_is_no_path(hooked: Server) -> None:
    """An id that looks like a path or a header of a mapping is the id of the event."""
    body = json.dumps({"type": "user.created", "data": {"id": 1}}).encode()
    with hooked.client() as client:
        for sent in ("$.data.id", "$.nope", "$header.x"):
            response = client.post("/v1/hooks/svix", content=body, headers=standard("svix", sent, body))
            assert response.status_code == 200, response.text
            assert event(hooked, response.json()["results"][0])["id"] == sent


def test_a_call_with_a_wrong_signature_publishes_nothing(hooked: Server) -> None:
    """A wrong secret, an old signature, or none: 403, and the server's log has the reason."""
    body = b'{"id": "evt_2", "type": "invoice.paid"}'
    before = len(hooked.installation.bodies())
    with hooked.client() as client:
        responses = [
            client.post("/v1/hooks/code", content=body, headers=github(body, b"guessed")),
            client.post("/v1/hooks/money", content=body, headers=stripe(body, int(time.time()) - 600)),
            client.post("/v1/hooks/money", content=body),
        ]

    assert [response.status_code for response in responses] == [403, 403, 403]
    assert len({response.text for response in responses}) == 1
    assert len(hooked.installation.bodies()) == before


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_the_signature_covers_the_compressed_body(coding: str, pack: Callable[[bytes], bytes], hooked: Server) -> None:
    """The event has the decompressed body; a signature of that is rejected."""
    body = json.dumps({"id": f"evt_{coding}", "type": "invoice.paid"}).encode()
    packed = {"content-encoding": coding}
    with hooked.client() as client:
        response = client.post(
            "/v1/hooks/money", content=pack(body), headers=stripe(pack(body), int(time.time())) | packed
        )
        unsigned = client.post("/v1/hooks/money", content=pack(body), headers=stripe(body, int(time.time())) | packed)
        bomb = gzip.compress(bytes(64 << 20), mtime=0)
        refused = [
            client.post("/v1/hooks/code", content=bomb, headers=github(bomb) | {"content-encoding": "gzip"}),
            client.post("/v1/hooks/code", content=body, headers=github(body) | {"content-encoding": "br"}),
        ]

    assert response.status_code == 200, response.text
    assert event(hooked, response.json()["results"][0])["data"] == {"id": f"evt_{coding}", "type": "invoice.paid"}
    assert unsigned.status_code == 403
    assert [each.status_code for each in refused] == [413, 415]
    assert refused[1].headers["accept-encoding"] == "gzip, deflate"


def test_a_form_gets_a_hint_at_the_content_type(hooked: Server) -> None:
    """GitHub sends forms by default. JSON with the content type of a form is accepted."""
    form, body = b"payload=%7B%22zen%22%3A%22x%22%7D", b'{"repository": {"name": "shop"}}'
    kind = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
    with hooked.client() as client:
        response = client.post("/v1/hooks/code", content=form, headers=github(form) | kind)
        labelled = client.post("/v1/hooks/code", content=body, headers=github(body) | kind)

    assert (response.status_code, labelled.status_code) == (400, 200)
    assert "Set the webhook's content type to application/json" in response.json()["results"][0]["error"]


@pytest.mark.parametrize(
    ("name", "body", "status", "said"),
    [
        ("code", b"payload=%7B%7D", 400, "data: not JSON"),
        ("code", b"{}", 400, "mapping of subject: there is nothing at $.repository.name"),
        ("code", b'{"repository": {"name": {}}}', 400, "is neither text nor a whole number"),
        ("cod", b"{}", 403, "the log of the server has the reason"),
        ("bare", b"{}", 403, "the log of the server has the reason"),
        ("mail", b"{}", 403, "the log of the server has the reason"),
    ],
)
def test_a_call_without_an_event_says_why(name: str, body: bytes, status: int, said: str, hooked: Server) -> None:
    """Not JSON, a path to nothing, an unknown webhook, a connection without a secret."""
    with hooked.client() as client:
        response = client.post(f"/v1/hooks/{name}", content=body, headers=github(body))

    assert response.status_code == status
    assert said in response.text
