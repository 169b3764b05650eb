"""A caller without the right to payloads has a target repeat one: the response is hidden as payloads are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from api.server import Installation, Server
from demo.receiver import ADDRESSES, Receiver

SECRET = "4711-4711"
EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "placed", "subject": SECRET}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a target that repeats in its response what it is sent."""
    folder = tmp_path_factory.mktemp("repeating")
    with Receiver(folder / "requests.jsonl") as receiver:
        made = Installation(folder, EVENTBRIDGE_ALLOW_ADDRESSES=ADDRESSES)
        target = {"type": "http", "url": receiver.url("/mirror"), "allow_http": True, "content_mode": "binary"}
        rule = {"bus": "orders", "pattern": {"type": ["none"]}, "targets": {"crm": target}}
        (folder / "rules" / "mirror.yaml").write_text(json.dumps({"rules": {"mirror": rule}}))
        with Server(made) as running:
            yield running


@pytest.mark.parametrize("payloads", [True, False])
def test_the_api_hides_what_a_target_says(server: Server, payloads: bool) -> None:
    """The status and the kind of error are shown to every caller with the right to send."""
    scopes = ["operate", *(["payloads"] if payloads else [])]
    with server.client(server.installation.token(f"api-{payloads}", *scopes)) as client:
        response = client.post("/v1/targets/mirror/crm/send", json={"event": EVENT})

    found = response.json()
    assert (response.status_code, found["accepted"], found["code"]) == (200, False, 400)
    assert (SECRET in found["response_head"]) is payloads
    assert found["response_head"].startswith("hidden: needs the scope payloads") is not payloads
    assert (SECRET in response.text) is payloads


@pytest.mark.parametrize("payloads", [True, False])
def test_the_page_hides_what_a_target_says(server: Server, payloads: bool) -> None:
    """The same for the form of the page, which shows again only what was written into it."""
    scopes = ["read", "operate", *(["payloads"] if payloads else [])]
    token = server.installation.token(f"page-{payloads}", *scopes)
    with server.client() as client:
        client.cookies.set("eventbridge_token", token)
        form = client.get("/page/targets/mirror/crm/try").text
        key = re.search(r'name="key" value="([^"]+)"', form)
        assert key is not None
        fields = {"do": "send", "key": key[1], "body": json.dumps(EVENT)}
        response = client.post("/page/targets/mirror/crm/try", data=fields, headers={"origin": server.url})

    assert response.status_code == 200, response.text
    said = response.text.partition("<h2>Response</h2>")[2].partition("</pre>")[0]
    assert (SECRET in said) is payloads
    assert ("hidden: needs" in said) is not payloads
