"""Applies the `Idempotency-Key` header: a repeated call gets the first response, and has no second effect."""

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

#: The header of a stored response that is sent again.
REPLAYED = "idempotency-replayed"

_MAX_KEY_LENGTH = 255


class Idempotency:
    """Stores the responses of calls with a key in the ledger, for EVENTBRIDGE_IDEMPOTENCY_RETENTION.

    Use it from one event loop.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._in_progress: set[tuple[str, str]] = set()

    async def once(
        self, caller: str, key: str | None, call_hash: str, call: Callable[[], Awaitable[Response]]
    ) -> Response:
        """Return the stored response of a caller's key or, without one, make the call and store its response.

        If `key` is None, only make the call. A response of 400 or above is not stored, so that the call, repeated or
        corrected, may use the same key.
        Raises CallRefused if the key was used for another call (422), or a call with it is in progress (409).
        """
        if key is None:
            return await call()
        if (caller, key) in self._in_progress:
            raise CallRefused(
                HTTPStatus.CONFLICT,
                f"A call with the key {key!r} is in progress. Retry after the delay in Retry-After",
                {"retry-after": "1"},
            )
        self._in_progress.add((caller, key))
        try:
            return await self._stored_response(caller, key, call_hash) or await self._call_and_store(
                caller, key, call_hash, call
            )
        finally:
            self._in_progress.discard((caller, key))

    async def _stored_response(self, caller: str, key: str, call_hash: str) -> Response | None:
        def read() -> KeptResponse | None:  # in a thread, because the clock may be the ledger's database
            return self._runtime.ledger.responses.get(caller, key, self._runtime.clock() - self._retention)

        found = await asyncio.to_thread(read)
        return None if found is None else _replayed(found, call_hash)

    async def _call_and_store(
        self, caller: str, key: str, call_hash: str, call: Callable[[], Awaitable[Response]]
    ) -> Response:
        response = await call()
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            return response
        body = bytes(response.body).decode()

        def store() -> None:
            now = self._runtime.clock()
            response_to_keep = KeptResponse(caller, key, call_hash, response.status_code, body, now)
            self._runtime.ledger.responses.keep(response_to_keep, now - self._retention)

        await asyncio.to_thread(store)
        return response

    @property
    def _retention(self) -> timedelta:
        return timedelta(seconds=self._runtime.settings.idempotency_retention)


def key_of(request: Request) -> str | None:
    """Return the idempotency key of a call, or None if it has none. Raises CallRefused if it is empty or too long."""
    key = request.headers.get(HEADER)
    if key is not None and not (0 < len(key) <= _MAX_KEY_LENGTH):
        raise CallRefused(
            HTTPStatus.BAD_REQUEST, f"{HEADER} must have 1 to {_MAX_KEY_LENGTH} characters, but has {len(key)}"
        )
    return key


def call_hash_of(request: Request, body: bytes) -> str:
    """Return a hash of a call: its method, path, query, the headers that describe its body, and the decompressed body.

    A client that repeats a call compresses its body again, and may get other bytes.
    """
    headers = sorted((k, v) for k, v in request.headers.items() if k == "content-type" or k.startswith("ce-"))
    parts = [request.method, request.url.path, request.url.query, *(part for pair in headers for part in pair)]
    digest = hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass"))
    digest.update(b"\n\n" + body)
    return digest.hexdigest()


def _replayed(kept: KeptResponse, call_hash: str) -> Response:
    if kept.call_hash != call_hash:
        raise CallRefused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"The key {kept.key!r} was used for another call. Use a new key for each call",
            code="idempotency_key_reused",
        )
    return Response(kept.body, kept.status, {REPLAYED: "true"}, "application/json")
