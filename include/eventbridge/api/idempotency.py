"""The header `Idempotency-Key`: a repeated call gets the first response, and publishes nothing twice."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from http import HTTPStatus

from fastapi import Request, Response

from eventbridge.api.refusal import CallRefused
from eventbridge.model.api import KeptResponse
from eventbridge.runtime.runtime import Runtime

HEADER = "Idempotency-Key"

#: Header of a response that was stored before.
REPLAYED = "idempotency-replayed"

_LONGEST_KEY = 255
_OF_CONTENT = ("content-type", "content-encoding")


class Idempotency:
    """Stores the responses of calls with a key in the ledger, for EVENTBRIDGE_IDEMPOTENCY_RETENTION.

    Use it from one event loop.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._under_way: set[tuple[str, str]] = set()

    async def once(
        self, caller: str, key: str | None, call_hash: str, call: Callable[[], Awaitable[Response]]
    ) -> Response:
        """Return the stored response of a caller's key, else make the call and store its response; None: make the call.

        A response of 400 or above is not stored: nothing was done, so a corrected call may use the same key.
        Raises CallRefused if the key was used for another call (422), or a call with it is in progress (409).
        """
        if key is None:
            return await call()
        if (caller, key) in self._under_way:
            raise CallRefused(
                HTTPStatus.CONFLICT,
                f"A call with the key {key!r} is in progress. Send this one again after Retry-After",
                {"retry-after": "1"},
            )
        self._under_way.add((caller, key))
        try:
            return await self._known(caller, key, call_hash) or await self._made(caller, key, call_hash, call)
        finally:
            self._under_way.discard((caller, key))

    async def _known(self, caller: str, key: str, call_hash: str) -> Response | None:
        def look() -> KeptResponse | None:  # in a thread: the clock may be the ledger's database
            return self._runtime.ledger.responses.get(caller, key, self._runtime.clock() - self._kept)

        found = await asyncio.to_thread(look)
        return None if found is None else _replayed(found, call_hash)

    async def _made(self, caller: str, key: str, call_hash: str, call: Callable[[], Awaitable[Response]]) -> Response:
        response = await call()
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            return response
        body = bytes(response.body).decode()

        def keep() -> None:
            now = self._runtime.clock()
            made = KeptResponse(caller, key, call_hash, response.status_code, body, now)
            self._runtime.ledger.responses.keep(made, now - self._kept)

        await asyncio.to_thread(keep)
        return response

    @property
    def _kept(self) -> timedelta:
        return timedelta(seconds=self._runtime.settings.idempotency_retention)


def key_of(request: Request) -> str | None:
    """Return the idempotency key of a call, None if it has none; raises CallRefused if it is empty or too long."""
    key = request.headers.get(HEADER)
    if key is not None and not (0 < len(key) <= _LONGEST_KEY):
        raise CallRefused(
            HTTPStatus.BAD_REQUEST, f"An {HEADER} has 1 to {_LONGEST_KEY} characters, and this one has {len(key)}"
        )
    return key


def call_hash_of(request: Request, content: bytes) -> str:
    """Return a hash of a call: its method, path, query, the headers that describe its content, and the content."""
    headers = sorted((k, v) for k, v in request.headers.items() if k in _OF_CONTENT or k.startswith("ce-"))
    parts = [request.method, request.url.path, request.url.query, *(part for pair in headers for part in pair)]
    digest = hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass"))
    digest.update(b"\n\n" + content)
    return digest.hexdigest()


def _replayed(found: KeptResponse, call_hash: str) -> Response:
    if found.call_hash != call_hash:
        raise CallRefused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"The key {found.key!r} was used for another call. Use a new key for each call",
        )
    return Response(found.body, found.status, {REPLAYED: "true"}, "application/json")
