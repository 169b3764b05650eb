"""Tests one target: whether it can be reached, and how it responds to one event.

A test is not a delivery, so neither the reconciliation nor a breaker counts it.
"""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from eventbridge.errors import EventError, UserError
from eventbridge.event.cloudevent import parse_event
from eventbridge.model.outcome import Response
from eventbridge.processes import check_cancelled, is_cancelled
from eventbridge.routing.headers import delivery_headers
from eventbridge.rules.find import find_rule, find_target
from eventbridge.rules.model import Rule, Target
from eventbridge.runtime.runtime import Runtime
from eventbridge.targets.http.fields import PREFIXES, HttpFields
from eventbridge.targets.protocol import Checkable, Request
from eventbridge.transform import Scope, compile_transform

#: The time in addition to a target's timeout, for connecting, for a token, and for the timeouts of a broker's client.
_SPARE_SECONDS = 15.0


def check_target(runtime: Runtime, rule: str, target: str) -> str | None:
    """Return why a target or dead letter queue of the current rules cannot be reached, or None if it can.

    Sends no request to the target, except for its handshake. Raises NotFoundError for an unknown target. Raises
    UserError if the configuration of the target is invalid, or if targets of its type can only be tested by sending.
    Raises Cancelled soon after the caller has disconnected.
    """
    spec = find_target(runtime.rule_set(), rule, target)
    with closing(runtime.open_target(rule, _with_rate_in_force(runtime, rule, spec))) as opened:
        if not isinstance(opened, Checkable):
            raise UserError(
                f"Targets of the type {spec.type} cannot be checked without sending. "
                f"Send one event: eventbridge targets send {rule} {target} --event FILE"
            )
        found = opened.check()
    check_cancelled()
    return found


def send_event(runtime: Runtime, rule: str, target: str, body: bytes) -> Response:
    """Send an event to a target once, whether or not its rule matches the event, and return the response.

    Raises NotFoundError for an unknown target, EventError for an invalid event, TransformFailed if the transform fails,
    and UserError for a transform that only Spark evaluates. Raises Cancelled soon after the caller has disconnected.
    """
    found = find_rule(runtime.rule_set(), rule)
    spec = find_target(runtime.rule_set(), rule, target)
    request = request_of(runtime, found, spec, body)
    until = runtime.clock() + timedelta(seconds=spec.timeout_seconds + _SPARE_SECONDS)

    def clock() -> datetime:
        return until if is_cancelled() else runtime.clock()  # after `until`, a target abandons its request in flight

    in_force = _with_rate_in_force(runtime, rule, spec)
    with closing(replace(runtime, clock=clock).open_target(rule, in_force)) as opened:
        response = Response(False, runtime.clock(), 0.0, error_class="NotSent", error="the target took no request")
        with closing(opened.deliver([request], until)) as responses, suppress(StopIteration):
            _, response = next(responses)
        opened.flush()
    check_cancelled()
    return response


def _with_rate_in_force(runtime: Runtime, rule: str, target: Target) -> Target:
    overrides = runtime.ledger.overrides.get_effective()
    return target.with_rate(overrides.rate(rule, target.name, target.rate_per_second))


def response_document(rule: str, target: str, response: Response) -> dict[str, Any]:
    """Return a target's response to one event as JSON, for the command line and the API."""
    return {
        "rule": rule,
        "target": target,
        "accepted": response.accepted,
        "code": response.code,
        "error_class": response.error_class,
        "error": response.error,
        "duration_ms": round(response.duration_ms, 1),
        "response_head": response.response_head.decode("utf-8", "replace"),
    }


def request_of(runtime: Runtime, rule: Rule, target: Target, body: bytes, delivery_id: str = "") -> Request:
    """Return the request for an event, with this delivery id or, if it is "", a new one.

    Raises the same errors as `send_event` for the event and the transform.
    """
    if target.transform.form == "SQL":
        raise UserError("Only Spark evaluates the SQL form. Publish an event that the rule matches instead.")
    try:
        event = parse_event(body, max_bytes=runtime.settings.event_max_size)
    except EventError as error:
        raise EventError(f"This is not an event: {error}. Send one event, as a JSON object") from None
    delivery_id = delivery_id or str(uuid.uuid4())
    scope = Scope(rule.name, rule.bus, target.name, delivery_id, runtime.clock())
    made = compile_transform(target.transform, content_mode=target.content_mode).render(event, scope)
    return Request(0, delivery_id, made.payload, made.content_type, delivery_headers(made, event))


@dataclass(frozen=True)
class CurlCall:
    """The request that a target gets for an event, the curl command that sends it, and notes on what that omits."""

    headers: tuple[tuple[str, str], ...]
    payload: str
    call: str
    notes: tuple[str, ...]


def curl_call(runtime: Runtime, rule: str, target: str, body: bytes, delivery_id: str = "") -> CurlCall:
    """Return the request to a target for an event, by the current rule. Nothing is sent, and no connection is read.

    Raises NotFoundError for an unknown target, EventError for an invalid event, and TransformFailed if the transform
    fails. Raises UserError if the target is not of type http, or if only Spark can transform events for it.
    """
    spec = find_target(runtime.rule_set(), rule, target)
    if spec.type != "http":
        raise UserError(f"Target {target} has the type {spec.type}: curl commands exist only for the type http")
    made = request_of(runtime, find_rule(runtime.rule_set(), rule), spec, body, delivery_id)
    assert isinstance(spec, HttpFields), "its type says so"
    headers = [("content-type", made.content_type), (f"{PREFIXES[spec.signature_headers]}-id", made.delivery_id)]
    headers += [*spec.headers.items(), *made.headers.items()]
    url, connection = spec.url, spec.connection
    notes = []
    if connection:
        notes.append(f"Credentials and signature are left out: the connection {connection!r} has them")
    if not url:
        notes.append(f"Set the variable URL first: the connection {connection!r} has it")
    if spec.batch is not None:
        notes.append("The target takes several deliveries in one request, but this request has only one")
    if spec.compression != "none":
        notes.append("The target gets a compressed body; this call sends it as it is")
    payload = made.payload.decode("utf-8", "replace")
    return CurlCall(tuple(headers), payload, as_curl(spec.method, url, headers, payload), tuple(notes))


def _format_header(name: str, value: str) -> str:
    """Return a header in curl's notation. An empty content type removes the one that curl would otherwise send."""
    if not value and name == "content-type":
        return f"{name}:"
    return f"{name}: {value}" if value.strip() else f"{name};"


def as_curl(method: str, url: str, headers: Sequence[tuple[str, str]], payload: str) -> str:
    """Return the curl command for a shell. If `url` is empty, the command uses the variable URL."""
    address = shlex.quote(url) if url else '"$URL"'
    lines = [f"curl -X {method} {address}"]
    lines += [f"-H {shlex.quote(_format_header(name, value))}" for name, value in headers]
    lines.append(f"--data-binary {shlex.quote(payload)}")
    return " \\\n  ".join(lines)
