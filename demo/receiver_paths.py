"""The test receiver's responses, which the first part of the path selects: any name may follow (`/healthy/crm`)."""

from __future__ import annotations

import base64
import json
import math
import re
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, unquote_plus


def batch_request_ids(headers: Mapping[str, str]) -> list[str]:
    """Return the delivery ids that a request lists, in the order of its items; none if it is not a batch request."""
    text = headers.get("webhook-ids", "")
    return text.split(",") if text else []


class BatchRequestEndpoint:
    """Refuses some deliveries of a path, and accepts them later."""

    def __init__(self) -> None:
        self._ordinals: dict[str, dict[str, int]] = defaultdict(dict)  # sequence numbers by path and delivery id
        self._refused: Counter[tuple[str, str]] = Counter()

    def statuses(self, path: str, ids: Sequence[str], status: int, every: int, times: int) -> list[int]:
        """Return `status` for every `every`th delivery of a path, `times` times for each, else 200."""
        found, ordinals = [], self._ordinals[path]
        for each in ids:
            key = (path, each)
            ordinal = ordinals.setdefault(each, 1 + len(ordinals))
            refused = ordinal % every == 0 and self._refused[key] < times
            self._refused[key] += refused
            found.append(status if refused else 200)
        return found


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


#: The form of the path after these first parts, such as a status and a name.
_NUMBERED = {
    "status": "[1-9][0-9]{2}",
    "script": "[1-9][0-9]{2}/[^/]+",
    "delay": "[0-9]{1,5}",
    "leave-after": "[0-9]+/[^/]+",
    "some-late": "[0-9]{1,5}/[1-9][0-9]*/[^/]+",
    "throttle": "[1-9][0-9]{0,3}/[^/]+",
    "token": "[0-9]{1,5}/[^/]+(/.*)?",
    "with-token": "[1-9][0-9]{0,4}(/.*)?",
    "each": "[1-9][0-9]{2}/[1-9][0-9]*/[0-9]+(/.*)?",
    "first": "[0-9]+(/.*)?",
    "at-most": "[0-9]+(/.*)?",
}
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Reply:
    """A response and how it is sent; with `status` None, the request never gets a response.

    With `drop`, the connection of a request without a response is closed immediately.
    """

    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"ok\n"
    delay_seconds: float = 0.0
    announced_bytes: int | None = None  # content-length if it differs from the body's
    drip_seconds: float = 0.0  # one more byte each, until announced_bytes
    close: bool = False  # close the connection after the body, unannounced; over HTTP/2 its stream alone
    drop: bool = False  # then close the connection, with all its streams
    hints: Mapping[str, str] = field(default_factory=dict)  # headers of a 103 response sent before
    item_statuses: Sequence[int] = ()  # status of each delivery of a batch request; empty: `status` applies to all


@dataclass(frozen=True)
class SeenRequest:
    """The parts of a request that decide its response."""

    rest: str  # the path after its first part
    webhook_id: str
    headers: Mapping[str, str]
    path: str = ""  # the whole path
    body: bytes = b""

    @property
    def ids(self) -> list[str]:
        """The delivery ids of a batch request, in the order of its items."""
        return batch_request_ids(self.headers)


class Paths:
    """Chooses replies; remembers how often a path of /flaky refused a webhook-id, and the tokens of /token.

    /token/SECONDS/SECRET is an OAuth2 token endpoint for every client with that secret; /with-token/USES accepts
    each of its tokens USES times. /throttle/SECONDS/NAME responds with 429 for SECONDS after its first request, with
    the rest of that time as Retry-After. /some-late/MS/EVERY/NAME responds to every EVERYth request after MS
    milliseconds, and to all others immediately. /leave-after/COUNT/NAME responds to the first COUNT requests, and
    closes the connection of each later one without a response. /scripted/NAME responds with the status that
    /script/STATUS/NAME set last, initially 200.

    For batch requests: /each/STATUS/EVERY/TIMES responds to every EVERYth delivery, in the order of their first
    attempts, with STATUS for the first TIMES attempts, and with 200 otherwise. /first/COUNT acknowledges the first
    COUNT deliveries. /at-most/COUNT refuses a batch request of more deliveries with 413, and /picky refuses one with
    the word poison with 400. /say/TEXT responds with 200 and the unescaped TEXT as JSON. /blame refuses each delivery
    separately, with the text of /mirror.
    """

    def __init__(self) -> None:
        self._scripted: dict[str, int] = {}
        self._seen: Counter[str] = Counter()
        self._refused: Counter[tuple[str, str]] = Counter()
        self._throttled: dict[str, float] = {}  # until when, by the monotonic clock
        self._tokens = TokenEndpoint()
        self._batch_requests = BatchRequestEndpoint()
        self._replies: dict[str, Callable[[SeenRequest], Reply]] = {
            "healthy": lambda seen: Reply(200),
            "slow": lambda seen: Reply(200, delay_seconds=0.2),
            "flaky": self._flaky,
            "bad": lambda seen: Reply(400, body=b"no such customer\n"),
            "gone": lambda seen: Reply(410, body=b"gone\n"),
            "hang": lambda seen: Reply(None),
            "abort": lambda seen: Reply(500, {"Webhook-Delivery": "abort-message"}),
            "cut": lambda seen: Reply(200, body=b"half", announced_bytes=100, close=True),
            "drop": lambda seen: Reply(
                200, delay_seconds=0.2, body=b"half", announced_bytes=100, close=True, drop=True
            ),
            "delay": lambda seen: Reply(200, delay_seconds=int(seen.rest) / 1000),
            "drip": lambda seen: Reply(200, body=b"", announced_bytes=1_000_000, drip_seconds=0.05),
            "echo": lambda seen: Reply(404, body=f"Cannot POST /echo/{seen.rest}\n".encode()),
            "empty": lambda seen: Reply(204, body=b""),
            "guarded": _guarded,
            "heads": lambda seen: Reply(503, {f"X-{number}": "x" * 60 for number in range(9_000)}),
            "head": lambda seen: Reply(200, {f"X-{number}": "x" * 8_000 for number in range(60)}),
            "hint": lambda seen: Reply(503, {"Retry-After": "5"}, hints={"Webhook-Delivery": "abort-message"}),
            "mirror": _mirror,
            "huge": lambda seen: Reply(200, body=b"x" * 3_000_000, announced_bytes=10**10),
            "once": lambda seen: Reply(200, close=True),
            "redirect": lambda seen: Reply(302, {"Location": "/healthy/redirected"}),
            "retry-after": lambda seen: Reply(503, {"Retry-After": seen.rest}),
            "leave-after": self._leave_after,
            "some-late": self._some_late,
            "status": lambda seen: Reply(int(seen.rest)),
            "script": self._script,
            "scripted": lambda seen: Reply(self._scripted.get(seen.rest, 200)),
            "throttle": self._throttle,
            "token": self._token,
            "with-token": self._with_token,
            "each": self._each,
            "first": _first,
            "at-most": lambda seen: Reply(413 if len(seen.ids) > int(seen.rest.partition("/")[0]) else 200),
            "blame": _blame,
            "picky": lambda seen: Reply(400 if b"poison" in seen.body else 200),
            "say": lambda seen: Reply(200, _JSON, unquote(seen.rest).encode()),
        }

    def reply(self, path: str, webhook_id: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Return the reply for a request; 404 if the path or its arguments are unknown."""
        first, _, rest = path.partition("?")[0].removeprefix("/").partition("/")
        if first not in self._replies or (first in _NUMBERED and not re.fullmatch(_NUMBERED[first], rest)):
            return Reply(404, body=f"paths: {' '.join(sorted(self._replies))}\n".encode())
        return self._replies[first](SeenRequest(rest, webhook_id, headers, path, body))

    def _flaky(self, seen: SeenRequest) -> Reply:
        if self._refused[seen.path, seen.webhook_id] < 2:
            self._refused[seen.path, seen.webhook_id] += 1
            return Reply(503, {"Retry-After": "1"}, body=b"try again\n")
        return Reply(200)

    def _throttle(self, seen: SeenRequest) -> Reply:
        now = time.monotonic()
        left = self._throttled.setdefault(seen.path, now + int(seen.rest.partition("/")[0])) - now
        return Reply(429, {"Retry-After": str(math.ceil(left))}) if left > 0 else Reply(200)

    def _some_late(self, seen: SeenRequest) -> Reply:
        milliseconds, every = map(int, seen.rest.split("/")[:2])
        self._seen[seen.path] += 1
        return Reply(200, delay_seconds=0.0 if self._seen[seen.path] % every else milliseconds / 1000)

    def _leave_after(self, seen: SeenRequest) -> Reply:
        self._seen[seen.path] += 1
        leaves = self._seen[seen.path] > int(seen.rest.partition("/")[0])
        return Reply(None, drop=True) if leaves else Reply(200)

    def _token(self, seen: SeenRequest) -> Reply:
        seconds, _, secret = seen.rest.partition("/")
        status, response = self._tokens.give(int(seconds), unquote(secret.partition("/")[0]), seen.headers, seen.body)
        return Reply(status, body=response)

    def _script(self, seen: SeenRequest) -> Reply:
        status, _, name = seen.rest.partition("/")
        self._scripted[name] = int(status)
        return Reply(204, body=b"")

    def _each(self, seen: SeenRequest) -> Reply:
        status, every, times = map(int, seen.rest.split("/")[:3])
        statuses = self._batch_requests.statuses(seen.path, seen.ids, status, every, times)
        results = [{"id": each, "status": its} for each, its in zip(seen.ids, statuses, strict=True)]
        return Reply(207, _JSON, json.dumps({"delivery_results": results}).encode(), item_statuses=statuses)

    def _with_token(self, seen: SeenRequest) -> Reply:
        uses = int(seen.rest.partition("/")[0])
        return Reply(200) if self._tokens.takes(seen.headers.get("authorization", ""), uses) else Reply(401)


def _mirror(seen: SeenRequest) -> Reply:
    """Refuse, and repeat everything that was sent except the body, as some frameworks' error pages do."""
    lines = [f"Cannot POST {seen.path}", *(f"{name}: {value}" for name, value in seen.headers.items()), ""]
    return Reply(400, body="\n".join(lines).encode("latin-1"))


def _blame(seen: SeenRequest) -> Reply:
    request = _mirror(seen).body.decode("latin-1")
    results = [{"id": each, "status": 400, "error": request, "request": request} for each in seen.ids]
    return Reply(207, _JSON, json.dumps({"delivery_results": results}).encode(), item_statuses=[400] * len(results))


def _first(seen: SeenRequest) -> Reply:
    count = min(int(seen.rest.partition("/")[0]), len(seen.ids))
    statuses = [200] * count + [503] * (len(seen.ids) - count)
    return Reply(200, _JSON, json.dumps({"acknowledge_index": count}).encode(), item_statuses=statuses)


def _guarded(seen: SeenRequest) -> Reply:
    return Reply(200) if seen.headers.get("authorization") == f"Bearer {seen.rest}" else Reply(401)
