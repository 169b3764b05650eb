"""Implements the Airflow target, which starts DAG runs or makes asset events through Airflow's public REST API (v2)."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final
from urllib.parse import quote

import msgspec

from eventbridge.config.connection import Connection
from eventbridge.errors import ConnectionUnusable, UserError
from eventbridge.model.outcome import TARGET_BUSY, Response
from eventbridge.targets.airflow.fields import AirflowFields, RunBatch
from eventbridge.targets.http.access import Access
from eventbridge.targets.http.address import origin_of
from eventbridge.targets.http.credentials import AIRFLOW_LOGIN, Credentials
from eventbridge.targets.http.egress import AddressRefused, HostUnknown, routed
from eventbridge.targets.http.endpoint import Endpoint
from eventbridge.targets.http.exchange import Exchange
from eventbridge.targets.http.fields import HttpFields
from eventbridge.targets.http.open import endpoint_and_access
from eventbridge.targets.http.target import HttpTarget
from eventbridge.targets.http.tokens import TokenUnavailable
from eventbridge.targets.lines import json_line
from eventbridge.targets.open import TargetSetup
from eventbridge.targets.protocol import DeliverySpan, Request, SpanResponse

#: The number of seconds for which a process uses what Airflow said about a DAG, and about an asset, whose id never
#: changes.
_DAG_SECONDS: Final = 5.0
_ASSET_SECONDS: Final = 300.0
#: The delay before deliveries are tried again to a DAG that already has as many runs as it may have.
_BUSY_SECONDS: Final = 10
_RUNS: Final = "queued", "running"
#: The character NUL in a JSON text: an odd number of backslashes before `u0000`.
_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_UNFIT: Final = (
    "the conf of a DAG run cannot hold the payload: it has the character NUL, half of a surrogate pair, or a number or "
    "nesting beyond all limits. Let the transform of the target leave that member out"
)


class LookUpFailed(Exception):
    """A DAG or an asset cannot take deliveries now; `error_class` names the reason."""

    def __init__(self, error_class: str, message: str) -> None:
        super().__init__(message)
        self.error_class = error_class


class _LoginRefused(LookUpFailed):
    """Airflow refuses the credentials of a request."""


@dataclass
class _Destination:
    """The answer of Airflow about a DAG or an asset: how many runs may start, or the asset's id.

    One thread at a time asks, with the lock held. `room` is None if the number of runs is not limited.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    good_until: float = 0.0
    room: int | None = None
    asset_id: int = 0

    def take_room(self) -> bool:
        """Return whether one more run may start, and count it."""
        with self.lock:
            if self.room is None:
                return True
            self.room -= 1
            return self.room >= 0

    def give_room_back(self) -> None:
        """Count one run less, because no run was started."""
        with self.lock:
            if self.room is not None:
                self.room += 1


@cache
def _known_destination(url: str, connection: str) -> _Destination:
    """Return what this process knows about a destination; a connection's account decides what it may see."""
    return _Destination()


class AirflowTarget:
    """Starts a run of one DAG for each delivery or part of a span, or makes an event of one asset for each delivery.

    The id of a run is that of its delivery or part, so that Airflow refuses to start it twice (409), which counts as
    accepted. No run is started while the DAG is paused, or has `max_active_runs` queued and running runs; pushes that
    work at the same time may exceed this number by the runs that each of them starts. An asset event has no id in
    Airflow, so the event's extra holds the delivery's id.
    """

    flush_every = 1
    more_of_response = 0

    def __init__(
        self, rule: AirflowFields, endpoint: Endpoint, access: Access, base: str, *, clock: Callable[[], datetime]
    ) -> None:
        self._rule = rule
        self._endpoint = endpoint
        self._access = access
        self._base = base
        self._clock = clock
        self._http = HttpTarget(endpoint, max_in_flight=rule.max_in_flight, access=access, clock=clock)
        path = f"dags/{rule.dag_id}" if rule.dag_id else f"assets/{rule.asset}"
        self._known = _known_destination(f"{base}/{path}", rule.connection)

    def deliver(self, requests: Sequence[Request], until: datetime) -> Generator[tuple[int, Response], None, None]:
        """Start a run or make an event for every request, see `protocol.Target`."""
        if self._rule.batch is not None:  # an event that is sent by hand comes in the form of a batch too
            requests = [replace(each, payload=_events([each.payload])) for each in requests]
        yield from self._deliver(requests, until)

    def _deliver(self, requests: Sequence[Request], until: datetime) -> Generator[tuple[int, Response], None, None]:
        if not requests or self._clock() >= until:
            return
        try:
            self._look_up(until)
        except (LookUpFailed, TokenUnavailable, AddressRefused, HostUnknown) as failure:
            yield from self._unsent(requests, failure, until)
            return
        refused: deque[tuple[int, Response]] = deque()
        with closing(self._http.deliver(self._prepared(requests, refused), until)) as responses:
            for index, response in responses:
                yield from _drained(refused)
                yield index, self._read(response)
        yield from _drained(refused)

    def deliver_span(self, span: DeliverySpan, until: datetime) -> SpanResponse | None:
        """Start one run with all deliveries of a span, or several if it exceeds `batch`; see `protocol.SpanTarget`.

        Deliveries whose payloads not every Airflow can store are rejected, because one of them would keep all others of
        its run out. Runs start one after the other, and those of an earlier try take no room (409), so that a span with
        more runs than `max_active_runs` gets on with each try.
        """
        lines = [json_line(each or b"")[:-1] for each in span.payloads.to_pylist()]
        unfit = {at for at, line in enumerate(lines) if not _is_storable(line)}
        ids = span.delivery_ids.to_pylist()
        response = Response(True, self._clock(), 0.0)
        stored: dict[bytes, Response] = {}
        for start, end in _runs(lines, self._rule.batch or RunBatch()):
            fit = [lines[at] for at in range(start, end) if at not in unfit]
            if not fit:
                continue
            # The id has the rows, because `batch` may change between two tries: an id must not name other deliveries.
            name = span.name if end - start == len(lines) else f"{span.name}-{start}-{end}"
            request = Request(0, name, _joined(fit), "application/json")
            sent = next((found for _, found in self._deliver([request], until)), None)
            if sent is None:
                return None
            response = sent
            if not sent.accepted:
                return SpanResponse(response, {}, stored)
            stored |= {ids[at]: sent for at in range(start, end) if at not in unfit}
        refused = response._replace(accepted=False, code=None, error_class="MessageRefused", error=_UNFIT)
        return SpanResponse(response, {ids[at]: refused for at in unfit})

    def flush(self) -> None:
        """Return immediately, because Airflow has stored what it acknowledged."""

    def check(self) -> str | None:
        """Return why the DAG or the asset cannot take deliveries now, or None if it can; starts nothing."""
        if (problem := self._http.check()) is not None:
            return problem
        self._known.good_until = 0.0
        try:
            self._look_up(self._clock() + timedelta(seconds=self._rule.timeout_seconds))
        except LookUpFailed as failure:
            return str(failure)
        except (TokenUnavailable, AddressRefused, HostUnknown) as failure:
            return f"{type(failure).__name__}: {failure}"
        return None

    def close(self) -> None:
        """Close connections."""
        self._http.close()

    def _prepared(self, requests: Sequence[Request], refused: deque[tuple[int, Response]]) -> Iterator[Request]:
        """Yield what is sent for each request; those that are not sent are added to `refused`."""
        for request in requests:
            now = self._clock()
            body = self._body(request)
            if isinstance(body, str):
                response = Response(False, now, 0.0, error_class="MessageRefused", error=body)
                refused.append((request.index, response))
            elif not self._known.take_room():
                what = f"DAG {self._rule.dag_id!r} has as many queued and running runs as its max_active_runs"
                response = Response(
                    False, now, 0.0, error_class=TARGET_BUSY, error=what, retry_after=str(_BUSY_SECONDS)
                )
                refused.append((request.index, response))
                return
            else:
                yield Request(request.index, request.delivery_id, body, "application/json", request.headers)

    def _body(self, request: Request) -> bytes | str:
        """Return the body of a request to Airflow, or why there is none."""
        try:
            found = msgspec.json.decode(request.payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            found = None
        if not isinstance(found, dict):
            what = "the conf of a DAG run" if self._rule.dag_id else "the extra of an asset event"
            return f"{what} must be a JSON object, but the payload is not. Correct the transform of the target"
        key, name = "", self._rule.partition_key
        if name:
            value = found.get(name)
            if not isinstance(value, str) or not value.strip() or len(value) > 250:
                return f"the member {name!r} of the payload, the partition key, must be text of 1 to 250 characters"
            key = f'"partition_key":{json.dumps(value)},'
        if self._rule.dag_id:
            head = f'{{"dag_run_id":"{request.delivery_id}","logical_date":null,{key}"conf":'
            return head.encode() + request.payload + b"}"
        members = request.payload.strip()[1:-1] + (b"," if found else b"")
        head = f'{{"asset_id":{self._known.asset_id},{key}"extra":{{'
        # at the end, because the last of several members with one name counts
        return head.encode() + members + f'"delivery_id":"{request.delivery_id}"}}}}'.encode()

    def _read(self, response: Response) -> Response:
        """Return what a response of Airflow means for the delivery."""
        if response.accepted and not response.response_head.lstrip().startswith(b'{"'):  # the page of a proxy
            failure = self._not_airflow()
            return response._replace(accepted=False, code=None, error_class=failure.error_class, error=str(failure))
        if response.code == 409 and self._rule.dag_id:
            self._known.give_room_back()
            return response._replace(accepted=True)  # the run exists, because an earlier try started it
        if response.accepted or response.code is None or response.error is not None:
            return response
        problem = self._problem_of(response.code)
        return response if problem is None else response._replace(error=problem)

    def _problem_of(self, code: int | None) -> str | None:
        if code == 404:
            return f"{self._what} does not exist in the Airflow at {self._base}. {self._remedy}"
        if code == 403:
            rights = (
                "read the DAG and its runs, and create runs" if self._rule.dag_id else "read assets and create events"
            )
            return f"the account of connection {self._rule.connection!r} lacks rights. Allow it to {rights}"
        return None

    @property
    def _what(self) -> str:
        return f"DAG {self._rule.dag_id!r}" if self._rule.dag_id else f"asset {self._rule.asset!r}"

    @property
    def _remedy(self) -> str:
        if self._rule.dag_id:
            return "Deploy the DAG, or correct dag_id"
        return "Deploy a DAG that names the asset, or correct asset"

    def _look_up(self, until: datetime) -> None:
        """Ask Airflow whether the DAG or the asset takes deliveries, unless this process did so lately.

        Raises LookUpFailed, TokenUnavailable, AddressRefused and HostUnknown.
        """
        known = self._known
        with known.lock:
            if time.monotonic() < known.good_until:
                return
            try:
                self._ask(self._access.ready(until))
            except _LoginRefused as refused:  # a token has ended, or the connection has changed
                try:
                    fresh = self._access.renewed(until)
                except UserError:  # of the connection
                    raise refused from None
                self._ask(fresh)
            known.good_until = time.monotonic() + (_DAG_SECONDS if self._rule.dag_id else _ASSET_SECONDS)

    def _ask(self, credentials: Credentials) -> None:
        if self._rule.dag_id:
            self._known.room = self._room(credentials)
        else:
            self._known.asset_id = self._asset_id(credentials)

    def _room(self, credentials: Credentials) -> int | None:
        """Return how many runs of the DAG may start, or None if their number is unknown or not limited."""
        path = f"dags/{quote(self._rule.dag_id, safe='')}"
        dag = self._get(path, credentials)
        if dag.get("dag_id") != self._rule.dag_id:
            raise self._not_airflow()
        if dag.get("has_import_errors"):
            raise LookUpFailed("DagBroken", f"{self._what} has import errors in the Airflow at {self._base}. Fix it")
        if dag.get("is_paused"):
            raise LookUpFailed("DagPaused", f"{self._what} is paused in the Airflow at {self._base}. Unpause it there")
        most = dag.get("max_active_runs")
        # without any run, because the conf of one may be larger than the response that is read
        runs = self._get(f"{path}/dagRuns?limit=0&" + "&".join(f"state={state}" for state in _RUNS), credentials)
        active = runs.get("total_entries")
        if not isinstance(most, int) or most < 1 or not isinstance(active, int):
            return None
        return max(0, most - active)

    def _asset_id(self, credentials: Credentials) -> int:
        name = self._rule.asset
        column = "uri" if "://" in name else "name"
        found = self._get(f"assets?limit=100&{column}_pattern={quote(name, safe='')}", credentials)
        listed = found.get("assets")
        for asset in listed if isinstance(listed, list) else []:
            if (
                isinstance(asset, dict)
                and name in (asset.get("name"), asset.get("uri"))
                and isinstance(asset.get("id"), int)
            ):
                return int(asset["id"])
        raise LookUpFailed("AssetMissing", f"{self._problem_of(404)}")

    def _get(self, path: str, credentials: Credentials) -> Mapping[str, Any]:
        """Return an object from Airflow. Raises LookUpFailed, AddressRefused and HostUnknown."""
        endpoint = replace(self._endpoint, url=f"{self._base}/api/v2/{path}", method="GET", whole_responses=True)
        with closing(Exchange(routed(endpoint))) as exchange:
            exchange.use(credentials)
            exchange.started_at = self._clock()
            exchange.prepare(["Expect:", "content-type:", "accept: application/json", *credentials.lines], b"")
            response, body = exchange.perform(), exchange.body
        if response.code == 401:
            what = f"{self._base} refuses the login of connection {self._rule.connection!r}"
            raise _LoginRefused("HTTP 401", f"{what}. Check its token, or its login and password")
        if response.code is None:
            raise LookUpFailed(response.error_class or "NetworkError", f"{self._base}: {response.error}")
        if response.code == 404:
            raise LookUpFailed("DagMissing" if self._rule.dag_id else "AssetMissing", f"{self._problem_of(404)}")
        if not response.accepted:
            problem = self._problem_of(response.code) or f"GET /api/v2/{path}: HTTP {response.code}"
            raise LookUpFailed(f"HTTP {response.code}", problem)
        try:
            found = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            found = None
        if not isinstance(found, dict):
            raise self._not_airflow()
        return found

    def _not_airflow(self) -> LookUpFailed:
        return LookUpFailed(
            "NotAirflow", f"{self._base} does not respond as Airflow's REST API (v2) does. Check url or the host"
        )

    def _unsent(
        self, requests: Sequence[Request], failure: Exception, until: datetime
    ) -> Iterator[tuple[int, Response]]:
        """Yield the failure for each request, because asking again for each would flood Airflow."""
        name = failure.error_class if isinstance(failure, LookUpFailed) else type(failure).__name__
        for request in requests:
            now = self._clock()
            if now >= until:
                return
            yield request.index, Response(False, now, 0.0, error_class=name, error=str(failure))


def _drained(refused: deque[tuple[int, Response]]) -> Iterator[tuple[int, Response]]:
    while refused:
        yield refused.popleft()


def _events(payloads: Sequence[bytes | None]) -> bytes:
    """Return a JSON object with all payloads in the array `events`."""
    return _joined([json_line(payload or b"")[:-1] for payload in payloads])


def _runs(lines: Sequence[bytes], most: RunBatch) -> Iterator[tuple[int, int]]:
    """Yield the first row of each run and the row after its last; a line beyond the size is in a run of its own."""
    start = size = 0
    for at, line in enumerate(lines):
        if at > start and (at - start == most.count or size + len(line) > most.size_bytes):
            yield start, at
            start, size = at, 0
        size += len(line)
    if lines:
        yield start, len(lines)


def _joined(lines: Sequence[bytes]) -> bytes:
    return b'{"events":[' + b",".join(lines) + b"]}"


def _is_storable(line: bytes) -> bool:
    """Return whether any Airflow can store a JSON text; PostgreSQL refuses a whole conf because of one NUL in it."""
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return False
    # The search for bytes takes 1 us, the expression 70 us for each KiB.
    return b"\\u0000" not in line or _NUL.search(line) is None


def open_airflow(opening: TargetSetup[AirflowFields]) -> AirflowTarget:
    """Return an Airflow target; reads its connection now, and again after a response 401.

    Raises UserError if the rule file makes it unusable, ConnectionUnusable if its connection is unusable.
    """
    target = opening.target
    base = (target.url or _address(opening, opening.connections(target.connection))).rstrip("/")
    path = f"dags/{quote(target.dag_id, safe='')}/dagRuns" if target.dag_id else "assets/events"
    http = HttpFields(
        name=target.name,
        url=f"{base}/api/v2/{path}",
        connection=target.connection,
        allow_http=target.allow_http,
        timeout_seconds=target.timeout_seconds,
        max_in_flight=target.max_in_flight,
    )
    setup = TargetSetup(
        opening.rule,
        http,
        lambda name: _with_login(opening.connections(name), base),
        opening.clock,
        opening.allow_addresses,
        opening.locations,
    )
    endpoint, access = endpoint_and_access(setup)
    return AirflowTarget(target, endpoint, access, base, clock=opening.clock)


def _address(opening: TargetSetup[AirflowFields], connection: Connection) -> str:
    """Return the address of the Airflow that a connection is for."""
    origin = origin_of(connection)
    if origin is None:
        raise ConnectionUnusable(
            f"Connection {connection.id!r} names no host, and target {opening.target.name!r} of rule {opening.rule!r} "
            "has no url. Set the host of the connection to that of Airflow, such as https://airflow.example."
        )
    scheme, host, port = origin
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}" + (f":{port}" if port else "")


def _with_login(connection: Connection, base: str) -> Connection:
    """Return a connection whose login and password are exchanged for a token, as Airflow's REST API requires."""
    if not connection.login or connection.extra.get("token_url"):
        return connection
    extra = {**connection.extra, "token_url": f"{base}/auth/token", "client_secret_in": AIRFLOW_LOGIN}
    return replace(connection, extra=extra)
