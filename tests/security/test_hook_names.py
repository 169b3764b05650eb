"""A caller without a secret guesses webhook names: an existing and a missing one get the same response."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import httpx
import pytest
from api.server import Installation, Server
from api.test_hooks import HOOKS, github, stripe

from eventbridge.api import hooks
from eventbridge.policy import webhook_signature

#: Existing webhooks whose connections are good, lack a secret, are not defined, or are of another type.
KNOWN = ("code", "money", "bare", "mail", "store")


@pytest.fixture(scope="module")
def hooked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with webhooks."""
    made = Installation(
        tmp_path_factory.mktemp("hooked"),
        more=HOOKS.removesuffix("}") + ",\n    store: {signature: github, connection: lake}}",
        EVENTBRIDGE_CONN_CODE="http://?signing_secret=key",
        EVENTBRIDGE_CONN_MONEY="http://?signing_secret=whsec_old%20whsec_new",
        EVENTBRIDGE_CONN_BARE="http://code.example",
        EVENTBRIDGE_CONN_LAKE="aws://key:secret@/?signing_secret=guessed",
    )
    with Server(made) as running:
        yield running


def seen(response: httpx.Response) -> tuple[object, ...]:
    """Return all of a response that its sender sees, but for the date."""
    headers = sorted((name, value) for name, value in response.headers.items() if name != "date")
    return response.status_code, response.content, headers


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("signed", ["wrongly", "not at all", "long ago", "in an unknown format"])
def test_a_name_that_exists_looks_like_one_that_does_not(hooked: Server, name: str, signed: str) -> None:
    """Status, headers and body are the same, whatever is wrong with the call or with the webhook's connection."""
    body = b'{"id": "evt_2", "type": "invoice.paid", "repository": {"name": "shop"}}'
    headers = {
        "wrongly": github(body, b"guessed") | stripe(body + b" ", int(time.time())),
        "not at all": {},
        "long ago": stripe(body, 1_000_000_000),
        "in an unknown format": {"x-hub-signature-256": "md5=1", "stripe-signature": "t=x", "webhook-id": "1"},
    }[signed]
    with hooked.client() as client:
        known = client.post(f"/v1/hooks/{name}", content=body, headers=headers)
        unknown = client.post("/v1/hooks/nothing", content=body, headers=headers)

    assert known.status_code == 403
    assert seen(known) == seen(unknown)


@pytest.mark.parametrize("size", [2, 4_000_000])
def test_the_response_time_reveals_nothing(hooked: Server, size: int) -> None:
    """Both get a response a tenth of a second after their body, though one is hashed and the other is not."""
    body = b"x" * size
    headers = github(body, b"guessed")
    took: dict[str, list[float]] = {"code": [], "nothing": []}
    with hooked.client() as client:
        for _ in range(5):
            for name, seconds in took.items():
                began = time.monotonic()
                client.post(f"/v1/hooks/{name}", content=body, headers=headers)
                seconds.append(time.monotonic() - began)

    medians = {name: statistics.median(seconds) for name, seconds in took.items()}
    assert min(medians.values()) >= 0.1
    assert abs(medians["code"] - medians["nothing"]) < 0.05, medians


@pytest.mark.parametrize("signed", ["wrongly", "not at all", "long ago"])
def test_a_name_is_worth_no_less_work(hooked: Server, monkeypatch: pytest.MonkeyPatch, signed: str) -> None:
    """Many large bodies at a time wait for each other, so that their time shows the work: it is the same for all."""
    body = b"x" * 1_000
    headers = {
        "wrongly": github(body, b"guessed") | stripe(body + b" ", int(time.time())),
        "not at all": {},
        "long ago": stripe(body, 1_000_000_000),
    }[signed]
    hashed: list[int] = []
    digest = webhook_signature._digest

    def counted(key: bytes, before: bytes, content: bytes) -> bytes:
        hashed.append(len(content))
        return digest(key, before, content)

    monkeypatch.setattr(webhook_signature, "_digest", counted)
    work = {}
    with hooked.installation.opened() as runtime:
        for name in (*KNOWN, "nothing"):
            hashed.clear()
            with pytest.raises(hooks._CallRejected):
                hooks._verified(runtime, (runtime.rule_set(), name), headers, body)
            work[name] = list(hashed)

    assert work == dict.fromkeys(work, [len(body)] * 2)


def test_names_are_not_in_the_description(hooked: Server) -> None:
    """openapi.json, which any token may read, names none."""
    with hooked.client(hooked.installation.token("reader", "read")) as client:
        described = client.get("/openapi.json").text

    assert not [name for name in KNOWN if f"/v1/hooks/{name}" in described]
