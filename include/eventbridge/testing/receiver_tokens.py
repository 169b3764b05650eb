"""The test receiver's OAuth2 token endpoint (RFC 6749, 4.4 client credentials), and the check of its tokens."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from urllib.parse import parse_qs, unquote_plus


class TokenEndpoint:
    """Issues tokens with an expiry, and counts the uses of each."""

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}
        self._used: Counter[str] = Counter()

    def give(self, seconds: int, secret: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Return status and JSON of the response to a request: a new token if the client secret is right.

        The secret comes by HTTP basic authentication, or in the form as `client_secret`.
        """
        form = {name: values[0] for name, values in parse_qs(body.decode("latin-1")).items()}
        if form.get("grant_type") != "client_credentials":
            return _error(400, "unsupported_grant_type", "this endpoint knows client_credentials")
        shown = _basic(headers) or form.get("client_secret", "")
        if shown != secret:
            return _error(401, "invalid_client", f"the client secret {shown} is wrong")
        token = secrets.token_urlsafe(24)
        self._ends[token] = time.monotonic() + seconds
        return 200, json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": seconds}).encode()

    def takes(self, authorization: str, uses: int) -> bool:
        """Return whether a request has an unexpired token of ours that was used fewer than `uses` times."""
        token = authorization.removeprefix("Bearer ")
        if self._ends.get(token, 0.0) <= time.monotonic() or self._used[token] >= uses:
            return False
        self._used[token] += 1
        return True


def _basic(headers: Mapping[str, str]) -> str:
    """Return the password of basic authentication, empty if there is none."""
    kind, _, pair = headers.get("authorization", "").partition(" ")
    if kind != "Basic":
        return ""
    return unquote_plus(base64.b64decode(pair).decode("latin-1").partition(":")[2])


def _error(status: int, error: str, description: str) -> tuple[int, bytes]:
    return status, json.dumps({"error": error, "error_description": description}).encode()
