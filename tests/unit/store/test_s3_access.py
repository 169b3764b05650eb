"""How an S3 store is named and reached: its URI, its connection, AWS's own chain; nothing printed holds a key."""

from __future__ import annotations

import re
import uuid

import pytest
from demo.s3_server import ACCESS_KEY, SECRET_KEY, S3Server

from eventbridge.clients.s3.access import S3Access
from eventbridge.config.connection import Connection
from eventbridge.errors import ConnectionUnusable, StoreError, UserError
from eventbridge.store.open import open_store
from eventbridge.store.s3 import S3Store


def test_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a connection nor AWS's own chain has any."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    store = S3Store("tests", "x", lambda: S3Access(endpoint="http://127.0.0.1:9"), attempts=1)
    for call in (lambda: store.list(""), lambda: store.get("x"), lambda: store.put("x", b"")):
        with pytest.raises(StoreError, match=r"there are no credentials. Name a connection"):
            call()


def test_aws_own_variables_are_used(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection without keys leaves them to AWS's own chain, for both libraries."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-chain")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    store = S3Store("tests", uuid.uuid4().hex, lambda: S3Access(endpoint=s3_server.endpoint))
    store.put("a", b"1")
    store.create("b", b"1")

    assert all("of-the-chain" in request.headers["HTTP_AUTHORIZATION"] for request in s3_server.requests)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("aws://key@/", "only one of login"),
        ("aws://k:hu%20sh@/", "its password contains white space"),
        ("aws://k:s@/?role_arn=x", "extra 'role_arn' is unknown.*profile"),
        ("aws://k:s@/?encryption=aes", "neither AES256 nor aws:kms"),
        ("aws://k:s@/?kms_key_id=x", "needs encryption=aws:kms"),
        ("aws://k:s@/?endpoint_url=127.0.0.1", "endpoint_url is not a URL"),
        ("aws://k:s@/?endpoint_url=http%3A%2F%2Fu%3Ahush%40h", "endpoint_url is not a URL"),
        ("aws://k:s@/?endpoint_url=http%3A%2F%2Fh%3Ax", "endpoint_url is not a URL"),
    ],
)
def test_a_connection_that_cannot_be_used(text: str, said: str) -> None:
    """An invalid connection is reported without its secrets."""
    with pytest.raises(ConnectionUnusable, match=f"Connection 's3' cannot be used for S3: .*{said}") as reported:
        S3Access.from_connection(Connection.from_text("s3", text))
    assert not re.search("hush|hu.*sh@", str(reported.value))


def test_the_connection_is_looked_up_with_the_first_call(s3_server: S3Server) -> None:
    """Opening makes no request; the uri names the connection and leads back to the same store."""
    asked = []

    def connections(connection_id: str) -> Connection:
        asked.append(connection_id)
        return Connection.from_text(connection_id, s3_server.connection)

    store = open_store(f"s3://lake@tests/{uuid.uuid4().hex}/", connections)
    assert asked == []
    store.put("x", b"1")

    assert asked == ["lake"]
    assert open_store(store.uri, connections).get("x") == b"1"


def test_secrets_are_not_in_what_is_printed(s3_server: S3Server) -> None:
    """Neither the uri nor a repr shows a key."""
    access = S3Access.from_connection(Connection.from_text("s3", s3_server.connection))
    store = S3Store("tests", "x", lambda: access, connection_id="s3")

    assert all(secret not in f"{store.uri} {access!r}" for secret in (ACCESS_KEY, SECRET_KEY))


@pytest.mark.parametrize(
    "uri",
    [
        "s3://AKIA:secret@bucket/prefix",
        "s3://@bucket/prefix",
        "s3://sec/ret@bucket/prefix",
        "s3:///prefix",
        "s3://b/prefix",
        "s3://Bucket_secret/prefix",
        "s3://bucket/a//b",
        "s3://bucket/../secret",
        "s3://bucket/a?secret=1",
        "s3://bucket/a#secret",
        "s3://bucket/a%20secret",
    ],
)
def test_a_uri_of_no_bucket_is_refused_without_showing_it(uri: str) -> None:
    """A user may have written a key into it."""
    with pytest.raises(UserError, match=r"The store's URI.*s3://connection@bucket/prefix") as reported:
        open_store(uri)
    assert "secret" not in str(reported.value)
