"""Writes the request of a delivery as a call of curl, for a person to try by hand; it has no secret of a connection."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from eventbridge.control.try_target import request_of
from eventbridge.errors import UserError
from eventbridge.rules.find import find_rule, find_target
from eventbridge.runtime.runtime import Runtime


@dataclass(frozen=True)
class CurlCall:
    """What a target is sent of an event: the call, and what it leaves out."""

    headers: tuple[tuple[str, str], ...]
    payload: str
    call: str
    notes: tuple[str, ...]


def curl_call(runtime: Runtime, rule: str, target: str, body: bytes, delivery_id: str = "") -> CurlCall:
    """Return what today's rule sends a target of an event; nothing is sent, no connection is read.

    Raises NotFoundError, EventError for what is not an event, TransformFailed, UserError for a target that is not of
    the type http or that only Spark transforms.
    """
    spec = find_target(runtime.rule_set(), rule, target)
    if spec.type != "http":
        raise UserError(f"The target {target} is of the type {spec.type}: curl speaks HTTP")
    made = request_of(runtime, find_rule(runtime.rule_set(), rule), spec, body, delivery_id)
    headers = [("content-type", made.content_type), ("webhook-id", made.delivery_id), *made.headers.items()]
    url, connection = getattr(spec, "url", ""), getattr(spec, "connection", None)
    notes = []
    if connection:
        notes.append(f"Credentials and signature are left out: the connection {connection!r} has them")
    if not url:
        notes.append(f"Set URL first: the connection {connection!r} has it")
    if getattr(spec, "batch", None) is not None:
        notes.append("The target takes several deliveries in one request: this is one of them, alone")
    payload = made.payload.decode("utf-8", "replace")
    return CurlCall(tuple(headers), payload, as_curl(url, headers, payload), tuple(notes))


def _written(name: str, value: str) -> str:
    """Return a header as curl takes it; a content type that is not there takes away the one that curl would send."""
    if not value and name == "content-type":
        return f"{name}:"
    return f"{name}: {value}" if value.strip() else f"{name};"


def as_curl(url: str, headers: Sequence[tuple[str, str]], payload: str) -> str:
    """Return the call for a shell; `url` "": the variable URL."""
    address = shlex.quote(url) if url else '"$URL"'
    lines = [f"curl -X POST {address}"]
    lines += [f"-H {shlex.quote(_written(name, value))}" for name, value in headers]
    lines.append(f"--data-binary {shlex.quote(payload)}")
    return " \\\n  ".join(lines)
