"""Somebody publishes small bodies that inflate: they are read apart, and other calls do not wait for them."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import hmac
import json
import threading
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from api.application import application
from api.server import Installation, order

from eventbridge.api import call_pools
from eventbridge.api.bodies import BATCHED, MAX_BYTES, bodies_of_request
from eventbridge.api.refusal import CallRefused
from eventbridge.control import submissions

#: More than the threads that all other calls share.
CALLS = 40
SECRET = "key"
HOOK = ", webhooks: {code: {signature: github, connection: code}}"
#: An array of as many elements as fit.
FULL = b"[" + b"0," * (MAX_BYTES // 2 - 1) + b"0]"


class Reading:
    """Reads bodies only once it may, and counts those that it reads meanwhile."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.count = 0

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.count += 1
        assert self.may_end.wait(60)
        return submissions.read_submissions(*given, **named)


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    """Bodies take as long to read as the test wants."""
    made = Reading()
    for module in ("publish", "hooks"):
        monkeypatch.setattr(f"eventbridge.api.{module}.read_submissions", made)
    return made


def installation(folder: Path) -> Installation:
    """Return an installation with a webhook."""
    return Installation(folder, more=HOOK, EVENTBRIDGE_CONN_CODE=f"http://?signing_secret={SECRET}")


def call(client: httpx.AsyncClient, path: str, number: int, coding: str = "gzip") -> asyncio.Task[httpx.Response]:
    """Begin to send an event."""
    content = json.dumps(order(number)).encode()
    content = gzip.compress(content) if coding else content
    headers = {
        "content-type": "application/cloudevents+json",
        "x-github-event": "push",
        "x-github-delivery": str(number),
        "x-hub-signature-256": f"sha256={hmac.new(SECRET.encode(), content, hashlib.sha256).hexdigest()}",
    }
    headers |= {"content-encoding": coding} if coding else {}
    return asyncio.create_task(client.post(path, content=content, headers=headers))


PATHS = pytest.mark.parametrize("path", ["/v1/buses/orders/events", "/v1/hooks/code"])


@PATHS
def test_other_calls_do_not_wait_until_bodies_are_inflated(
    path: str, reading: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Health and tokens are checked while many bodies are read, a few at a time; then each gets its response."""

    async def attack() -> tuple[list[int], int, list[int]]:
        async with application(installation(tmp_path), monkeypatch) as client:
            calls = [call(client, path, number) for number in range(CALLS)]
            while reading.count < call_pools.MAX_BODY_READS:
                await asyncio.sleep(0.01)
            async with asyncio.timeout(20):
                others = [
                    await client.get("/health"),
                    await client.get("/openapi.json", headers={"authorization": "x"}),
                ]
                others += [await client.get("/openapi.json")]
            read = reading.count
            reading.may_end.set()
            return (
                [each.status_code for each in others],
                read,
                [each.status_code for each in await asyncio.gather(*calls)],
            )

    assert asyncio.run(attack()) == ([200, 401, 200], call_pools.MAX_BODY_READS, [200] * CALLS)


@PATHS
def test_a_body_that_waits_too_long_is_refused(
    path: str, reading: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response is 503 with Retry-After, and nothing of the call is published."""
    monkeypatch.setattr(call_pools, "WAIT_SECONDS", 1.0)

    async def attack() -> tuple[list[httpx.Response], list[httpx.Response]]:
        async with application(installation(tmp_path), monkeypatch) as client:
            first = [call(client, path, number) for number in range(call_pools.MAX_BODY_READS)]
            while reading.count < call_pools.MAX_BODY_READS:
                await asyncio.sleep(0.01)
            refused = await asyncio.gather(*(call(client, path, number) for number in range(10, 14)))
            reading.may_end.set()
            return refused, await asyncio.gather(*first)

    refused, first = asyncio.run(attack())
    assert {each.status_code for each in refused} == {503}
    assert {each.headers["retry-after"] for each in refused} == {"1"}
    assert {each.status_code for each in first} == {200}


def test_an_array_of_millions_of_elements_is_refused_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a small part of the time of reading them all, which would block all threads."""
    headers = [("content-type", BATCHED)]
    times = []
    for _ in range(3):
        began = time.thread_time()
        with pytest.raises(CallRefused, match="more than 1,000 events") as refused:
            bodies_of_request(headers, FULL)
        times.append(time.thread_time() - began)
    began = time.thread_time()
    msgspec.json.decode(FULL, type=list[msgspec.Raw])
    all_read = time.thread_time() - began

    assert refused.value.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    assert min(times) < all_read / 3, (times, all_read)
