"""The events of a request, by the HTTP binding of CloudEvents 1.0.2."""

from __future__ import annotations

import base64
import gzip
import json

import pytest

from eventbridge.api.bodies import bodies_of_request
from eventbridge.api.refusal import CallRefused

BINARY = [("ce-specversion", "1.0"), ("ce-id", "7"), ("ce-source", "/s"), ("ce-type", "t")]
STRUCTURED = [("content-type", "application/cloudevents+json")]
BATCHED = [("content-type", "application/cloudevents-batch+json")]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("plain", "plain"),
        ('"a b \\"c\\""', 'a b "c"'),
        ('"a%20b"', "a b"),
        ('"100\\%25"', "100%"),
        ("Euro%20%E2%82%AC%20%f0%9f%98%80", "Euro € 😀"),
        ("Grüße".encode().decode("latin-1"), "Grüße"),
        ("%2520", "%20"),
        ("100%", "100%"),
        ('"', '"'),
        ('a "b" c', 'a "b" c'),
        ('"a" "b"', '"a" "b"'),
        ('"a\\"', '"a\\"'),
    ],
)
def test_an_attribute_is_unquoted_and_then_percent_decoded(written: str, meant: str) -> None:
    """Section 3.1.3.2: a value that is one quoted string loses its quotes; then one round of percent-decoding."""
    (body,) = bodies_of_request([*BINARY, ("ce-subject", written)], b"")

    assert json.loads(body)["subject"] == meant


@pytest.mark.parametrize(
    ("headers", "content", "said"),
    [
        ([*BINARY, ("ce-subject", "a"), ("ce-subject", "b")], b"", "the attribute subject occurs twice"),
        ([*BINARY, ("ce-id", "7")], b"", "the attribute id occurs twice"),
        ([*BINARY, *STRUCTURED, *STRUCTURED], b"{}", "has more than one header Content-Type"),
        ([*BINARY, ("ce-subject", "%ff")], b"", "header ce-subject: it is not UTF-8"),
        (STRUCTURED, b" \n[{}]", "Send an array as application/cloudevents-batch"),
        (BATCHED, b" {}", "Send one event as application/cloudevents"),
        (BATCHED, gzip.compress(b"[]", mtime=0), "Send Content-Encoding: gzip"),
        (STRUCTURED, gzip.compress(b"{}", mtime=0), "Send Content-Encoding: gzip"),
    ],
)
def test_a_malformed_request_is_refused(headers: list[tuple[str, str]], content: bytes, said: str) -> None:
    """With 400, and a remedy."""
    with pytest.raises(CallRefused, match=said) as refused:
        bodies_of_request(headers, content)

    assert refused.value.status == 400


def test_bytes_of_a_binary_event_may_be_a_gzip_file() -> None:
    """Only the header Content-Encoding makes the server decompress a body."""
    packed = gzip.compress(b"{}", mtime=0)
    (body,) = bodies_of_request([*BINARY, ("content-type", "application/gzip")], packed)

    assert base64.b64decode(json.loads(body)["data_base64"]) == packed
