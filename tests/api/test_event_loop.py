"""Slow work never runs in the event loop, where it would block all other calls."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from api.server import Installation, order

from eventbridge.api.app import create_app
from eventbridge.cli.runtime import open_runtime
from eventbridge.control import submissions

HOOK = ", webhooks: {code: {signature: github, connection: code}}"


def in_loop() -> bool:
    """Return whether this is the thread of an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("path", ["/v1/buses/orders/events", "/v1/hooks/code"])
@pytest.mark.parametrize("what", ["clock", "read"])
def test_clock_and_parser_run_in_threads(what: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock may be a database, and a body may have 8 MiB."""
    made = Installation(tmp_path, more=HOOK, EVENTBRIDGE_CONN_CODE="http://?signing_secret=key")
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)
    content = json.dumps(order()).encode()
    headers = {
        "authorization": f"Bearer {made.token('shop', 'publish:orders')}",
        "content-type": "application/cloudevents+json",
        "idempotency-key": "once",
        "x-github-event": "push",
        "x-github-delivery": "1",
        "x-hub-signature-256": f"sha256={hmac.new(b'key', content, hashlib.sha256).hexdigest()}",
    }
    seen: list[bool] = []

    def noting(called: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any, **named: Any) -> Any:
            seen.append(in_loop())
            return called(*given, **named)

        return noted

    if what == "read":
        for module in ("publish", "hooks"):
            monkeypatch.setattr(f"eventbridge.api.{module}.read_submissions", noting(submissions.read_submissions))

    async def post() -> int:
        with open_runtime() as runtime:
            app = create_app(dataclasses.replace(runtime, clock=noting(runtime.clock)) if what == "clock" else runtime)
            transport = httpx.ASGITransport(app)
            async with (
                app.router.lifespan_context(app),
                httpx.AsyncClient(transport=transport, base_url="http://api") as client,
            ):
                return (await client.post(path, content=content, headers=headers)).status_code

    assert asyncio.run(post()) == 200
    assert seen
    assert not any(seen)


def test_an_event_that_is_too_large_is_not_parsed_for_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size alone is the error."""
    parsed: list[bytes] = []
    monkeypatch.setattr(submissions.json, "loads", parsed.append)

    (read,) = submissions.read_submissions([b'{"data": "' + b"x" * 2_000 + b'"}'], max_bytes=1_000)

    assert "the largest allowed is 1,000" in read.error
    assert parsed == []
