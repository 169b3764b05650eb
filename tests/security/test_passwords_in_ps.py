"""Another user of the host reads arguments of processes (`ps`): none of them is a password."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import boto3
import psutil
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from demo.production import env
from demo.production.compose import document, services
from demo.production.images import prepare
from demo.production.native import Process, Substitutions
from s3proxy.server import fetch_s3proxy

from eventbridge.config.indirect import resolve_url
from eventbridge.errors import UserError

SECRETS = env.random_secrets()
_PATIENCE_SECONDS = 60.0


@contextmanager
def running(name: str, port: int, folder: Path) -> Iterator[Process]:
    """Run a service of docker-compose.yaml as `make up-production` does, until the block ends."""
    service = services(SECRETS)[name]
    native = Substitutions(services(SECRETS), folder)
    [process] = native.processes(service)
    [volume] = [native.volume(each) for each in service.volumes.values()]
    volume.mkdir(parents=True)
    if not service.is_own:
        process = prepare(process, volume)
    with subprocess.Popen(process.command, env=dict(process.environment), stdin=subprocess.DEVNULL) as child:
        try:
            until = time.monotonic() + _PATIENCE_SECONDS
            while not _listens(process.address, port):
                assert child.poll() is None, f"{name} ended with {child.returncode}"
                assert time.monotonic() < until, f"{name} does not listen"
                time.sleep(0.05)
            yield process
        finally:
            child.terminate()


def _listens(address: str, port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((address, port)) == 0


def arguments() -> str:
    """Return the arguments of every process of the host, as `ps` shows them."""
    return "\n".join(" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"]))


@pytest.mark.parametrize("name", sorted(document(SECRETS)["services"]))
def test_no_service_is_given_a_secret_as_an_argument(name: str) -> None:
    """Neither its command nor its health check has one once variables are put in."""
    fields = document(SECRETS)["services"][name]
    words = f"{fields.get('command')} {fields.get('healthcheck')} {fields.get('entrypoint')} {fields.get('labels')}"

    assert [secret for secret, value in SECRETS.items() if value in words] == []


def test_valkey_requires_a_password_that_is_not_shown(tmp_path: Path) -> None:
    """The running server refuses a client without it and takes one with it."""
    with running("valkey", 6379, tmp_path) as process:
        seen = arguments()
        responses = []
        for login in ("", f"AUTH {SECRETS['VALKEY_PASSWORD']}\r\n"):
            with closing(socket.create_connection((process.address, 6379), timeout=10)) as client:
                client.sendall(f"{login}PING\r\nQUIT\r\n".encode())
                responses.append(b"".join(iter(lambda: client.recv(4096), b"")))  # read within the loop

    assert responses[0].startswith(b"-NOAUTH ")
    assert responses[1].startswith(b"+OK\r\n+PONG\r\n")
    assert SECRETS["VALKEY_PASSWORD"] not in seen


def test_the_s3_server_requires_keys_that_are_not_shown(tmp_path: Path) -> None:
    """The running server takes requests that the keys sign, and no others."""

    def lists(address: str, secret: str) -> Callable[[], object]:
        client = boto3.client(
            "s3",
            endpoint_url=f"http://{address}:9000",
            aws_access_key_id=SECRETS["S3_ACCESS_KEY"],
            aws_secret_access_key=secret,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
        )
        return lambda: client.list_buckets()["Buckets"]

    fetch_s3proxy()
    with running("s3", 9000, tmp_path) as process:
        seen = arguments()
        right = lists(process.address, SECRETS["S3_SECRET_KEY"])()
        with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
            lists(process.address, "x" * 32)()

    assert right == []
    assert SECRETS["S3_SECRET_KEY"] not in seen
    assert SECRETS["S3_ACCESS_KEY"] not in seen


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://eventbridge:hunter2@db.example/eventbridge",
        "postgresql+psycopg://eventbridge:hunter2@db.example:5432/eventbridge?sslmode=require",
        "postgresql://:hunter2@db.example/x",
        "postgresql://db.example/eventbridge?user=e&password=hunter2",
        "postgresql://db.example/eventbridge?PASSWORD=hunter2",
        "postgresql://db.example/eventbridge?sslkey=a&sslpassword=hunter2",
        "postgresql://eventbridge:hunter2:@db.example/eventbridge",
    ],
)
def test_a_url_with_a_password_is_no_argument(url: str) -> None:
    """`ledger copy` refuses it, without showing it, and says where it goes instead."""
    with pytest.raises(UserError, match=r"may not be an argument.*Put it into a variable") as caught:
        resolve_url(url, {})

    assert "hunter2" not in str(caught.value)


def test_a_url_comes_from_a_variable_a_file_or_a_command(tmp_path: Path) -> None:
    """The argument is the variable's name; a URL without a password is one itself."""
    (tmp_path / "url").write_text("postgresql://a:hunter2@x/file\n")

    assert resolve_url("sqlite:////srv/ledger.sqlite", {}) == "sqlite:////srv/ledger.sqlite"
    assert resolve_url("postgresql://eventbridge@x/y", {}) == "postgresql://eventbridge@x/y"
    assert resolve_url("NEW", {"NEW": "postgresql://a:hunter2@x/y"}) == "postgresql://a:hunter2@x/y"
    assert resolve_url("NEW", {"NEW_FILE": str(tmp_path / "url")}) == "postgresql://a:hunter2@x/file"
    assert resolve_url("NEW", {"NEW_CMD": "echo postgresql://a:hunter2@x/cmd"}) == "postgresql://a:hunter2@x/cmd"


@pytest.mark.parametrize("environ", [{}, {"NEW": "a://b", "NEW_FILE": "/x"}, {"NEW_FILE": "/nowhere"}])
def test_a_variable_that_gives_no_url_is_an_error(environ: dict[str, str]) -> None:
    """None, two at once, or a file that is not there."""
    with pytest.raises(UserError, match="NEW"):
        resolve_url("NEW", environ)
