"""A client of the HTTP API, sync and async; it needs the `client` extra, and imports nothing of the server."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Concatenate, Final, Generic, Literal, ParamSpec, Self, TypedDict, TypeVar, Unpack, overload
from urllib.parse import quote

import httpx
import msgspec
from msgspec.structs import replace

T = TypeVar("T")
A = TypeVar("A")
P = ParamSpec("P")
Document = dict[str, Any]
Time = str | datetime
_Page = tuple[list[T], str | None]  # the items of one page, and the cursor of the next one
_BATCHED: Final = "application/cloudevents-batch+json"
_NAMES: Final = {"since": "from", "until": "to"}
#: The members with the items of lists whose members are not named like the paths.
_MEMBERS: Final = {"dead-letter-groups": "groups", "quality": "quality_checks", "schemas": "schemas", "stats": "rules"}
_RETRIED: Final = frozenset({409, 429, 502, 503, 504})  # 409: the try whose connection was lost is in progress
_LOST: Final = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError)
_MAX_DELAY_SECONDS: Final = 30.0
_VISIBLE: Final = re.compile("[!-~]+").fullmatch


class ApiError(Exception):
    """A refused call; `code` is one of docs/reference/error-codes.md, or "" if something else than the API answered."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        code, title, detail = (problem.get(name, "") for name in ("code", "title", "detail"))
        super().__init__(f"{status} {code or title}: {detail}")
        self.status, self.code, self.title, self.detail = status, code, title, detail
        self.remedy, self.errors = problem.get("remedy", ""), tuple(problem.get("errors") or ())


class PublishedEvent(msgspec.Struct, frozen=True):
    """The result of one event: its position on the bus, or the error that prevented its publication."""

    id: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    error: str | None = None
    status: int | None = None


class Published(msgspec.Struct, frozen=True):
    """The result of a publishing call, with one result for each event, in order."""

    published: int
    failed: int
    results: tuple[PublishedEvent, ...]


class Rule(msgspec.Struct, frozen=True):
    """The main fields of a rule in force; `get("rules", name)` returns all of them."""

    name: str
    bus: str
    pattern: Document
    targets: dict[str, Document]
    enabled: bool
    priority: str


class Target(msgspec.Struct, frozen=True):
    """The state of a target; `waiting` is its number of pending deliveries."""

    rule: str
    target: str
    state: str
    reason: str
    waiting: int
    hold_reason: str


class OverrideResult(msgspec.Struct, frozen=True):
    """The result of an action; `changed` is False if there was nothing to change."""

    changed: bool
    released: int


class DeadLetter(msgspec.Struct, frozen=True):
    """A dead letter; `event`, `request` and `attempts` are None unless the complete dead letter was requested."""

    name: str
    delivery_id: str | None
    rule: str | None
    target: str | None
    reason: str
    detail: str | None
    event_id: str | None = None
    event: Any = None
    request: Any = None
    attempts: Any = None


class Redrive(msgspec.Struct, frozen=True):
    """A redrive, with the number of its dead letters by outcome."""

    redrive_id: str
    state: str
    taken: int
    outcomes: dict[str, int]


class Replay(msgspec.Struct, frozen=True):
    """A replay with its progress."""

    replay_id: str
    state: str
    bus: str
    read: int
    taken: int


class Delivery(msgspec.Struct, frozen=True):
    """A delivery of a queue; `receipt` names it in other calls until `visible_until`."""

    receipt: str
    delivery_id: str
    rule: str
    target: str
    attempt: int
    visible_until: datetime
    content_type: str
    headers: dict[str, str]
    payload: str = ""
    payload_base64: bytes = b""

    @property
    def body(self) -> bytes:
        """The payload."""
        return self.payload_base64 or self.payload.encode()


class Receipts(msgspec.Struct, frozen=True):
    """How many deliveries a call changed, and the receipts of the others, whose visibility timeout was over."""

    done: int
    expired: tuple[str, ...]


class _Received(msgspec.Struct, frozen=True):
    deliveries: tuple[Delivery, ...]


class DeadLetterFilter(TypedDict, total=False):
    """The filters of dead letters; times are ISO 8601 text, an age such as 2h, or an aware datetime."""

    rule: str
    target: str
    reason: str
    error: str
    since: Time
    until: Time


class _Call(msgspec.Struct, Generic[T], frozen=True):
    """A request of both clients, and the function that reads its response."""

    method: str
    path: str
    read: Callable[[bytes], T]
    query: Mapping[str, Any] = {}
    body: Any = None
    headers: Mapping[str, str] = {}
    again: bool = True

    def tries(self, http: Any, retries: int, answers: Sequence[Any]) -> Iterator[tuple[float, httpx.Request]]:
        """Yield delays and requests until the newest of `answers`, a response or an error, is the last one."""
        content = None if self.body is None else json.dumps(self.body, allow_nan=False)  # msgspec writes NaN as null
        headers = {"content-type": "application/json", **self.headers}
        query, delay = _api_values(self.query), 0.0
        for tried in range(1 + max(0, retries) if self.again else 1):
            yield delay, http.build_request(self.method, self.path, params=query, content=content, headers=headers)
            answer = answers[-1]
            after = "" if isinstance(answer, Exception) else answer.headers.get("retry-after", "")
            delay = (float(after) if after.isdecimal() else 0.0) + random.uniform(0, 0.5 * 2**tried)
            if delay > _MAX_DELAY_SECONDS or not (isinstance(answer, Exception) or answer.status_code in _RETRIED):
                return

    def result(self, response: httpx.Response | Exception) -> T:
        """Return the result; a publishing call without a valid event is refused, but has results."""
        if isinstance(response, Exception):
            raise response
        try:
            problem = msgspec.json.decode(response.content, type=Document)
            if response.is_success or (response.status_code in (400, 413) and "results" in problem):
                return self.read(response.content)
        except msgspec.MsgspecError as error:
            problem = {"detail": f"{error}. Check URL and version of the server"} if response.is_success else {}
        problem = {"title": response.reason_phrase, "detail": response.text[:500] or "Check the URL", **problem}
        raise ApiError(response.status_code, problem) from None


def _api_values(values: Mapping[str, Any]) -> Document:
    """Return the values that are set, times as text, by their names in the API."""
    for name, value in values.items():
        _require(getattr(value, "tzinfo", True), f"{name} has no time zone. Write one, such as datetime.now(UTC)")
    text = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}
    return {_NAMES.get(name, name): value for name, value in text.items() if value is not None}


def _require(valid: object, message: str) -> None:  # no message shows a URL or a token
    if not valid:
        raise ValueError(message)


def _path(parts: Sequence[str]) -> str:
    _require({"", ".", ".."}.isdisjoint(parts), "a name in the path of the call is empty, . or ..")
    return "/".join(quote(part, safe="") for part in parts)


def _call(method: str, parts: Sequence[str], result: type[T], body: Any = None, key: str = "") -> _Call[T]:
    _require(not key or _VISIBLE(key), "the idempotency key must be printable ASCII without white space")
    headers, again = {"idempotency-key": key} if key else {}, method != "POST"
    return _Call(
        method, _path(parts), lambda content: msgspec.json.decode(content, type=result), {}, body, headers, again
    )


def _receipts(
    queue: str, verb: str, deliveries: Sequence[Delivery], *, again: bool = True, **values: Any
) -> _Call[Receipts]:
    body = {"receipts": [each.receipt for each in deliveries], **_api_values(values)}
    return replace(_call("POST", ("queues", queue, verb), Receipts, body), again=again)


def _pages(path: str, item: type[T], query: Mapping[str, Any]) -> _Call[_Page[T]]:
    def read(content: bytes) -> _Page[T]:
        found = msgspec.json.decode(content, type=Document)
        member = _MEMBERS.get(path.partition("/")[0]) or path.rpartition("/")[2].replace("-", "_")
        some: Any = msgspec.convert(found.get(member), dict if path == "rules" else list)
        for error in found.get("unreadable") or ():
            logging.getLogger(__name__).warning("the list %s is incomplete: %s", path, error)
        return [msgspec.convert(each, item) for each in (some.values() if path == "rules" else some)], found.get("next")

    return _Call("GET", _path(path.split("/")), read, query)


class _Verb(Generic[P, T, A]):
    """A method of both clients, which returns T or, of the async client, A."""

    def __init__(self, build: Callable[Concatenate[Any, P], Any], send: str) -> None:
        self._build, self._send, self.__doc__ = build, send, build.__doc__

    @overload
    def __get__(self, client: EventBridgeClient, owner: object) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncEventBridgeClient, owner: object) -> Callable[P, A]: ...
    def __get__(self, client: Any, owner: object) -> Any:
        if client is None:
            return self
        return lambda *args, **named: getattr(client, self._send)(self._build(client, *args, **named))


def _verb(build: Callable[Concatenate[Any, P], _Call[T]]) -> _Verb[P, T, Coroutine[Any, Any, T]]:
    return _Verb(build, "_send")


def _list(build: Callable[Concatenate[Any, P], _Call[_Page[T]]]) -> _Verb[P, Iterator[T], AsyncIterator[T]]:
    return _Verb(build, "_items")


class _Calls:
    _kind: Any

    def __init__(self, url: str, token: str, *, retries: int = 3, timeout: float = 60.0) -> None:
        _require(re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", url), "the URL must be http(s)://host:port, no login")
        _require(_VISIBLE(token), "the token must be printable ASCII without white space, and not empty")
        headers = {"authorization": f"Bearer {token}"}
        self._http = self._kind(base_url=f"{url.rstrip('/')}/v1/", headers=headers, timeout=timeout)
        self._retries = retries

    @_verb
    def publish(
        self, bus: str, events: Sequence[Mapping[str, Any]], *, topic: str | None = None, idempotency_key: str = ""
    ) -> _Call[Published]:
        """Publish at most 1,000 CloudEvents; without `idempotency_key`, this call and its retries share a new one."""
        if isinstance(events, Mapping | str | bytes):
            raise TypeError("events is no list of events. Write [event] for one event")
        call = _call("POST", ("buses", bus, "events"), Published, list(events), idempotency_key or str(uuid.uuid4()))
        return replace(call, query={"topic": topic}, headers={**call.headers, "content-type": _BATCHED}, again=True)

    @_verb
    def receive(
        self, queue: str, count: int = 100, *, wait: str = "20s", visibility_timeout: str | None = None
    ) -> _Call[tuple[Delivery, ...]]:
        """Receive at most `count` deliveries, or none if there are none for `wait`; see `acknowledge`."""
        body = _api_values({"count": count, "wait": wait, "visibility_timeout": visibility_timeout})
        found = _call("POST", ("queues", queue, "receive"), _Received, body)
        return _Call(found.method, found.path, lambda content: found.read(content).deliveries, body=body, again=False)

    @_verb
    def acknowledge(self, queue: str, deliveries: Sequence[Delivery]) -> _Call[Receipts]:
        """Record that deliveries were processed; what is not acknowledged in time is received again."""
        return _receipts(queue, "acknowledge", deliveries)

    @_verb
    def extend(self, queue: str, deliveries: Sequence[Delivery], visibility_timeout: str) -> _Call[Receipts]:
        """Keep deliveries for this time from now on."""
        return _receipts(queue, "extend", deliveries, visibility_timeout=visibility_timeout)

    @_verb
    def release(
        self, queue: str, deliveries: Sequence[Delivery], *, delay: str | None = None, error: str = ""
    ) -> _Call[Receipts]:
        """Give deliveries back, which counts as a failed attempt; it is not tried again."""
        return _receipts(queue, "release", deliveries, again=False, delay=delay, error=error)

    @_verb
    def get(self, /, *path: str, **query: Any) -> _Call[Document]:
        """Return the document of any GET call, such as `get("status")` or `get("stats", days=1)`."""
        return replace(_call("GET", path, Document), query=query)

    @_verb
    def post(self, /, *path: str, body: Mapping[str, Any] | None = None, key: str = "") -> _Call[Document]:
        """Make any POST call, such as `post("targets", "big-orders", "crm", "check")`; it is not retried."""
        return _call("POST", path, Document, None if body is None else _api_values(body), key)

    @_list
    def items(self, path: str, /, **query: Any) -> _Call[_Page[Document]]:
        """Iterate over any list, such as `items("redrives")`, `items("batches")` or `items("events", since="1h")`."""
        return _pages(path, Document, query)

    @_list
    def rules(self) -> _Call[_Page[Rule]]:
        """Iterate over the rules in force, sorted by name."""
        return _pages("rules", Rule, {})

    @_verb
    def rule(self, rule: str) -> _Call[Rule]:
        """Return a rule in force."""
        return _call("GET", ("rules", rule), Rule)

    @_verb
    def change_rule(self, rule: str, verb: Literal["pause", "resume", "disable", "enable"]) -> _Call[OverrideResult]:
        """Pause, resume, disable or enable a rule."""
        return _call("POST", ("rules", rule, verb), OverrideResult)

    @_verb
    def set_priority(self, rule: str, priority: str | None) -> _Call[OverrideResult]:
        """Set a priority that applies instead of the rule file's; None clears it."""
        body = None if priority is None else {"priority": priority}
        return _call("DELETE" if body is None else "PUT", ("rules", rule, "priority"), OverrideResult, body)

    @_list
    def targets(self) -> _Call[_Page[Target]]:
        """Iterate over the targets."""
        return _pages("targets", Target, {})

    @_verb
    def target(self, rule: str, target: str) -> _Call[Target]:
        """Return the state of a target."""
        return _call("GET", ("targets", rule, target), Target)

    @_verb
    def change_target(self, rule: str, target: str, verb: Literal["pause", "resume"]) -> _Call[OverrideResult]:
        """Pause or resume a target."""
        return _call("POST", ("targets", rule, target, verb), OverrideResult)

    @_verb
    def set_rate(self, rule: str, target: str, rate: str | None) -> _Call[OverrideResult]:
        """Set a maximum rate, such as 10/s, that applies instead of the rule file's; None clears it."""
        body = None if rate is None else {"rate": rate}
        return _call("DELETE" if body is None else "PUT", ("targets", rule, target, "rate"), OverrideResult, body)

    @_list
    def dead_letters(self, *, whole: bool = False, **filters: Unpack[DeadLetterFilter]) -> _Call[_Page[DeadLetter]]:
        """Iterate over dead letters, those of the newest batch first; `whole` includes event, request and attempts."""
        return _pages("dead-letters", DeadLetter, {"whole": whole, "limit": 20 if whole else None, **filters})

    @_verb
    def dead_letter(self, name: str) -> _Call[DeadLetter]:
        """Return a whole dead letter; `name` may also be a delivery id, or the position of an event."""
        return _call("GET", ("dead-letters", name), DeadLetter)

    @_verb
    def start_redrive(
        self, *, key: str = "", rate: float | None = None, **filters: Unpack[DeadLetterFilter]
    ) -> _Call[Redrive]:
        """Record a redrive of the dead letters that meet all filters; it is not retried."""
        return _call("POST", ("redrives",), Redrive, _api_values({"rate": rate, **filters}), key)

    @_verb
    def start_replay(
        self, bus: str, since: Time, until: Time | None = None, *, rules: Sequence[str] = (), key: str = ""
    ) -> _Call[Replay]:
        """Record a replay of archived events for these rules, or for all; it is not retried."""
        body = _api_values({"bus": bus, "since": since, "until": until, "rules": list(rules)})
        return _call("POST", ("replays",), Replay, body, key)


class EventBridgeClient(_Calls):
    """Calls the API of one server; use it in a `with` block.

    GET, PUT, DELETE and `publish` are tried again after a lost connection and after 409, 429, 502, 503 and 504, at
    most `retries` times. Raises ApiError for a refused call, else httpx.RequestError for a lost connection.
    """

    _kind = httpx.Client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def _send(self, call: _Call[T]) -> T:
        answers: list[httpx.Response | Exception] = []
        for delay, request in call.tries(self._http, self._retries, answers):
            time.sleep(delay)
            try:
                answers.append(self._http.send(request))
            except _LOST as error:
                answers.append(error)
        return call.result(answers[-1])

    def _items(self, call: _Call[_Page[T]]) -> Iterator[T]:
        cursor: str | None = ""
        while cursor is not None:
            items, cursor = self._send(call)
            yield from items
            call = replace(call, query={**call.query, "cursor": cursor})


class AsyncEventBridgeClient(_Calls):
    """Calls the API of one server as EventBridgeClient does; use it in an `async with` block."""

    _kind = httpx.AsyncClient

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.aclose()

    async def _send(self, call: _Call[T]) -> T:
        answers: list[httpx.Response | Exception] = []
        for delay, request in call.tries(self._http, self._retries, answers):
            await asyncio.sleep(delay)
            try:
                answers.append(await self._http.send(request))
            except _LOST as error:
                answers.append(error)
        return call.result(answers[-1])

    async def _items(self, call: _Call[_Page[T]]) -> AsyncIterator[T]:
        cursor: str | None = ""
        while cursor is not None:
            items, cursor = await self._send(call)
            for item in items:
                yield item
            call = replace(call, query={**call.query, "cursor": cursor})
