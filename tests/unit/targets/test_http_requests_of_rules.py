"""What a rule file says about the requests of an http target, as a real receiver gets it."""

from __future__ import annotations

import base64
import gzip
import hmac
import os
import uuid
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from demo.receiver import Receiver
from unit.loopback import LOOPBACK, later, now

from eventbridge.config.connection import Connection
from eventbridge.errors import UserError
from eventbridge.model.outcome import Response
from eventbridge.rules import Target
from eventbridge.rules.load import load_rules
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Request

RULE = """
buses: {{orders: {{source: {{type: embedded}}}}}}
rules:
  big:
    bus: orders
    pattern: {{}}
    targets:
      crm: {{type: http, allow_http: true, url: "{url}", {fields}}}
"""


def read(folder: Path, url: str, fields: str) -> Target:
    """Return the target of a rule file."""
    (folder / "orders.yaml").write_text(RULE.format(url=url, fields=fields))
    return load_rules(folder).rules["big"].targets["crm"]


def send(spec: Target, payloads: list[bytes], connection: Connection | None = None) -> list[Response]:
    """Deliver JSON payloads to a target and return the responses."""
    requests = [Request(n, str(uuid.uuid4()), each, "application/json") for n, each in enumerate(payloads)]

    def connections(_: str) -> Connection:
        assert connection is not None
        return connection

    with closing(open_target("big", spec, connections, now, LOOPBACK)) as target:
        return [response for _, response in sorted(target.deliver(requests, later()), key=lambda each: each[0])]


def a_request(index: int) -> Request:
    """Return a request with a delivery id of its own."""
    return Request(index, str(uuid.uuid4()), b"{}", "application/json")


def got(receiver: Receiver, path: str) -> list[dict[str, Any]]:
    """Return what the receiver got at a path."""
    return [each for each in receiver.requests() if each["path"] == path]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_the_method_is_that_of_the_rule_and_the_body_is_sent(receiver: Receiver, tmp_path: Path, method: str) -> None:
    """Each method carries the payload."""
    path = f"/healthy/{method}"

    send(read(tmp_path, receiver.url(path), f"method: {method}"), [b'{"a":1}'])

    assert [(each["method"], each["body"]) for each in got(receiver, path)] == [(method, b'{"a":1}')]


def test_targets_with_other_methods_share_no_handle(receiver: Receiver, tmp_path: Path) -> None:
    """In one process a PUT after a POST is a PUT, and the next POST a POST."""
    path = "/healthy/mixed"
    for fields in ("max_in_flight: 1", "method: PUT", "max_in_flight: 1"):
        send(read(tmp_path, receiver.url(path), fields), [b"{}"])

    assert [each["method"] for each in got(receiver, path)] == ["POST", "PUT", "POST"]


@pytest.mark.parametrize("batch", ["", ", batch: {count: 2}"])
def test_the_headers_of_the_rule_go_out_with_every_request(receiver: Receiver, tmp_path: Path, batch: str) -> None:
    """Also with batch requests, and beside the headers of the delivery."""
    path = f"/healthy/headers{len(batch)}"
    fields = f"headers: {{X-Tenant: shop, Accept: application/json}}{batch}"

    send(read(tmp_path, receiver.url(path), fields), [b"1", b"2", b"3"])

    requests = got(receiver, path)
    assert len(requests) == (2 if batch else 3)
    for each in requests:
        assert (each["headers"]["x-tenant"], each["headers"]["accept"]) == ("shop", "application/json")
        assert each["headers"]["content-type"] == "application/json"
        assert each["headers"]["webhook-id"]


def test_a_header_that_the_connection_sets_too_is_refused(receiver: Receiver, tmp_path: Path) -> None:
    """A credential is never joined by a value of the rule file."""
    connection = Connection(
        "crm", "http", f"http://127.0.0.1:{receiver.port}", extra={"api_key": "k-4711", "api_key_header": "X-Tenant"}
    )
    spec = read(tmp_path, receiver.url("/healthy/twice"), "connection: crm, headers: {x-tenant: shop}")

    with pytest.raises(UserError, match="sets the header x-tenant, which its connection 'crm' sets too"):
        send(spec, [b"{}"], connection)

    assert got(receiver, "/healthy/twice") == []


@pytest.mark.parametrize(("names", "prefix"), [("standard", "webhook"), ("svix", "svix")])
@pytest.mark.parametrize("batch", ["", ", batch: {count: 2}"])
def test_the_signature_has_the_headers_of_the_rule(
    receiver: Receiver, tmp_path: Path, names: str, prefix: str, batch: str
) -> None:
    """One set of names or the other; the signature is that of id, time and body."""
    path = f"/healthy/{names}{len(batch)}"
    key = b"k" * 24
    secret = f"whsec_{base64.b64encode(key).decode()}"
    connection = Connection("crm", "http", f"http://127.0.0.1:{receiver.port}", extra={"signing_secret": secret})
    spec = read(tmp_path, receiver.url(path), f"connection: crm, signature: {{headers: {names}}}{batch}")

    send(spec, [b"{}", b"[]"], connection)

    for each in got(receiver, path):
        headers = each["headers"]
        signed = f"{headers[f'{prefix}-id']}.{headers[f'{prefix}-timestamp']}.".encode() + each["body"]
        expected = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
        assert headers[f"{prefix}-signature"] == f"v1,{expected}"
        assert (f"{prefix}-ids" in headers) == bool(batch)
        assert {name.partition("-")[0] for name in headers} & {"webhook", "svix"} == {prefix}


@pytest.mark.parametrize(("size", "level"), [(64 * 1024, 6), (64 * 1024 + 1, 1)])
def test_a_large_body_is_compressed_fast(receiver: Receiver, tmp_path: Path, size: int, level: int) -> None:
    """The thread that compresses serves all targets of a push; the level depends on the size alone."""
    path = f"/healthy/large{size}"
    payload = base64.b64encode(os.urandom(size))[:size]

    send(read(tmp_path, receiver.url(path), "compression: gzip"), [payload])

    [request] = got(receiver, path)
    assert request["body"] == zlib.compress(payload, level, wbits=16 + zlib.MAX_WBITS)
    assert gzip.decompress(request["body"]) == payload


@pytest.mark.parametrize("batch", ["", ", batch: {count: 2}"])
def test_a_body_is_compressed_to_the_same_bytes_and_signed_before(
    receiver: Receiver, tmp_path: Path, batch: str
) -> None:
    """A receiver decompresses, then verifies; a second attempt has the bytes of the first."""
    path = f"/healthy/gzip{len(batch)}"
    key = b"k" * 24
    secret = f"whsec_{base64.b64encode(key).decode()}"
    connection = Connection("crm", "http", f"http://127.0.0.1:{receiver.port}", extra={"signing_secret": secret})
    spec = read(tmp_path, receiver.url(path), f"connection: crm, compression: gzip{batch}")
    payload = b'{"a":"' + b"ab" * 5_000 + b'"}'

    assert all(response.accepted for _ in range(2) for response in send(spec, [payload], connection))

    first, second = got(receiver, path)
    assert first["body"] == second["body"]
    assert first["headers"]["content-encoding"] == "gzip"
    assert first["headers"]["content-length"] == str(len(first["body"]))
    whole = gzip.decompress(first["body"])
    assert whole == (b"[" + payload + b"]" if batch else payload)
    assert len(first["body"]) < len(payload) / 10
    signed = f"{first['headers']['webhook-id']}.{first['headers']['webhook-timestamp']}.".encode() + whole
    expected = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    assert first["headers"]["webhook-signature"] == f"v1,{expected}"


@pytest.mark.parametrize("payload", [b"", b"{}", os.urandom(2_000)])
def test_a_body_that_gzip_makes_no_smaller_is_sent_as_it_is(receiver: Receiver, tmp_path: Path, payload: bytes) -> None:
    """Without the header that says that it is compressed."""
    path = f"/healthy/{uuid.uuid4()}"

    send(read(tmp_path, receiver.url(path), "compression: gzip"), [payload])

    [each] = got(receiver, path)
    assert (each["body"], each["headers"].get("content-encoding")) == (payload, None)
