"""Somebody who reads errors and logs learns no password of a URL, however it is written in a setting."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from api.server import Installation
from sqlalchemy import make_url

from eventbridge.config.settings import Settings
from eventbridge.errors import EventBridgeError, SettingsError, UserError
from eventbridge.ledger.engines.registry import engine_of
from eventbridge.ledger.engines.shown_url import redact_url
from eventbridge.spark.session import channel_builder, redact_address
from eventbridge.store.open import open_store
from eventbridge.targets.http.tokens import TokenClient

#: The parts of a password with characters that separate the parts of a URL.
PARTS = ("SECRET", "HIDDEN")


def shows(text: str) -> list[str]:
    """Return the parts of the password that a text has."""
    return [each for each in PARTS if each.lower() in text.lower()]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:SECRET@HIDDEN@127.0.0.1:9/x",
        "postgresql://u:SECRET@x@HIDDEN@127.0.0.1:9/x",
        "postgresql://u:SECRET/HIDDEN@x@127.0.0.1:9/x",
        "postgresql+psycopg://u:SECRET@HIDDEN@127.0.0.1:9/x",
        "postgresql://u:SECRET/HIDDEN@127.0.0.1:9/x",
        "postgresql://u:SECRET?HIDDEN@127.0.0.1:9/x",
        "postgresql://127.0.0.1:9/x?password=SECRET&user=u&sslpassword=HIDDEN",
        "postgresql://u:SECRET:HIDDEN/x",
        "mysql://u:SECRET@HIDDEN@127.0.0.1:9/x",
        "SECRET:HIDDEN@127.0.0.1",
    ],
)
@pytest.mark.parametrize("arguments", [("status", "--json"), ("batches", "list"), ("ledger", "migrate")])
def test_no_command_shows_the_password_of_the_ledger(tmp_path: Path, url: str, arguments: tuple[str, ...]) -> None:
    """Neither its output nor its error has a part of it, whether the URL is refused or its server is away."""
    made = Installation(tmp_path, EVENTBRIDGE_LEDGER_URL=url)
    done = subprocess.run(made.command(*arguments), env=made.env, capture_output=True, text=True, timeout=120)

    assert done.returncode != 0
    assert shows(done.stdout + done.stderr) == []
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("url", ["postgresql://u:SECRET@HIDDEN@db.example/x", "postgres://u:S@HIDDEN@db.example/x"])
def test_an_unescaped_at_is_refused(url: str) -> None:
    """The rest of the password would be the host: a name that is looked up, and shown by every error."""
    with pytest.raises(SettingsError, match="%40") as refused:
        engine_of(url)
    with pytest.raises(EventBridgeError, match="%40") as as_setting:
        Settings.from_mapping({"EVENTBRIDGE_LEDGER_URL": url})

    assert shows(str(refused.value) + str(as_setting.value)) == []


def test_a_shown_url_has_places_only() -> None:
    """User, host, port and database help; parameters other than places are left out."""
    url = make_url("postgresql://u:SECRET@HIDDEN@db.example:5433/x?host=/run/pg&password=SECRET")

    assert redact_url(url) == "postgresql://u:***@db.example:5433/x?host=%2Frun%2Fpg"
    assert redact_url(make_url("sqlite:////tmp/a/ledger.sqlite")) == "sqlite:////tmp/a/ledger.sqlite"


@pytest.mark.parametrize(
    "url",
    [
        "gs://SECRET:HIDDEN@bucket/prefix",
        "file://u:SECRET@HIDDEN/folder",
        "https://SECRET:HIDDEN@s3.example/bucket",
        "s3://SECRET:HIDDEN@bucket/prefix",
        "s3://SECRET@HIDDEN@bucket/prefix",
        "s3://[SECRET:HIDDEN@bucket/prefix",
        "gs://SECRET:\N{CARE OF}HIDDEN@bucket/prefix",
    ],
)
def test_no_error_shows_the_keys_of_the_store(url: str) -> None:
    """A URI that is refused is not shown: keys may stand in it by mistake."""
    with pytest.raises(UserError) as refused:
        open_store(url, lambda name: pytest.fail(f"{name} is looked up"))

    assert shows(str(refused.value)) == []


@pytest.mark.parametrize(
    "url",
    [
        "sc://u:SECRETHIDDEN@127.0.0.1:9/",
        "sc://u:SECRET@HIDDEN@127.0.0.1:9",
        "sc://u:SECRET/HIDDEN@127.0.0.1:9",
        "sc://u:SECRET;HIDDEN@127.0.0.1:9",
        "sc://127.0.0.1:9/SECRET/HIDDEN",
        "sc://127.0.0.1:9/;authorization",
        "sc://127.0.0.1:9/;SECRETHIDDEN",
        "sc://;authorization=SECRET",
        "http://u:SECRET@HIDDEN@127.0.0.1:9/",
    ],
)
def test_no_error_shows_the_secrets_of_a_spark_server(url: str) -> None:
    """An address that Spark would refuse, and quote, is refused without its secrets."""
    with pytest.raises(UserError) as refused:
        channel_builder(url)

    assert shows(str(refused.value) + redact_address(url)) == []


@pytest.mark.parametrize("parameters", ["token=SECRET", "authorization=SECRET", "x-key=SECRET;token=HIDDEN", ""])
def test_an_address_of_spark_is_host_and_port(parameters: str) -> None:
    """Every parameter may hold a secret, and none is shown."""
    assert redact_address(f"sc://spark.example:15002/;{parameters}") == "sc://spark.example:15002"
    assert redact_address(f"sc://[::1]:15002/;{parameters}") == "sc://[::1]:15002"


def test_a_token_endpoint_is_shown_without_a_login() -> None:
    """Errors of the token name its endpoint."""
    client = TokenClient("crm", "https://u:SECRET@login.example/token?key=HIDDEN", "id", "secret")

    assert client.origin == "https://login.example"
