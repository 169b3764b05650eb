"""A Spark Connect server started by EventBridge serves holders of its token on this host, and shows no secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest
from demo.production import env
from demo.production.compose import document
from spark.own_server import own_server

from eventbridge.config.connection import Connection
from eventbridge.errors import SparkError, UserError
from eventbridge.spark.environment import drop_secrets, worker_variables, write_secrets
from eventbridge.spark.failure import spark_errors
from eventbridge.spark.server import SparkConnectServer
from eventbridge.spark.session import connect, forget, is_cleartext, redact_address, with_token

#: What must never be in the environment of a Spark process, by variable.
SECRETS = {
    "EVENTBRIDGE_CONN_STORE": "aws://key:hidden-store@",
    "EVENTBRIDGE_LEDGER_URL": "postgresql://u:hidden-ledger@h/d",
    "AIRFLOW_CONN_STORE": "aws://key:hidden-airflow@",
    "AIRFLOW__CORE__FERNET_KEY": "hidden-fernet",
    "AWS_ACCESS_KEY_ID": "hidden-key",
    "AWS_SECRET_ACCESS_KEY": "hidden-secret",
    "GITHUB_TOKEN": "hidden-token",
    "HTTPS_PROXY": "http://u:hidden-proxy@h:1",
    "SPARK_CONNECT_AUTHENTICATE_TOKEN": "hidden-other",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnectServer]:
    """A server that is started in an environment full of secrets."""
    environ = {**os.environ, **SECRETS}
    with own_server(tmp_path_factory.mktemp("spark"), master="local[1]", environ=environ) as running:
        yield running


def _asked(url: str, runner: str) -> None:
    forget(url, runner)
    with spark_errors("asked"):
        connect(url, runner).sql("SELECT 1").collect()


@pytest.mark.parametrize(
    "token",
    [None, "", "x", "Bearer", "{token}x", "{short}", " {token}", "{upper}", "*", "null", "{token},x"],
)
def test_a_stranger_is_refused(server: SparkConnectServer, token: str | None) -> None:
    """Without the token, or with any other, nothing runs; the message says how the token is given."""
    said = {"token": server.token, "short": server.token[:-1], "upper": server.token.swapcase()}
    url = redact_address(server.url)
    if token is not None:
        url += f"/;token={quote(token.format(**said))}"

    with pytest.raises(SparkError, match=r"authentication token.*Append ;token=T"):
        _asked(url, "stranger")


def test_a_client_with_the_token_is_served(server: SparkConnectServer) -> None:
    """By the server's own URL, and by its address with the token added."""
    _asked(server.url, "friend")
    _asked(with_token(redact_address(server.url), server.token), "friend")


def test_every_server_has_a_token_of_its_own() -> None:
    """Random, of 256 bits."""
    tokens = {SparkConnectServer().token for _ in range(5)}

    assert len(tokens) == 5
    assert all(len(token) == 43 for token in tokens)


def _processes(server: SparkConnectServer) -> list[psutil.Process]:
    leader = psutil.Process(server.pid)
    return [each for each in (leader, *leader.children(recursive=True)) if each.status() != psutil.STATUS_ZOMBIE]


def test_no_command_line_shows_a_secret(server: SparkConnectServer) -> None:
    """Not of Spark's Java nor of its workers; the server's log holds none either."""
    _asked(server.url, "friend")
    shown = json.dumps([each.cmdline() for each in _processes(server)]) + server.log.read_text(errors="replace")

    assert server.token not in shown
    assert "hidden" not in shown


def test_no_environment_of_spark_holds_a_secret(server: SparkConnectServer) -> None:
    """Neither Java's nor a worker's: beside a shell, `${env:NAME}` of Spark's SQL reads it."""
    for each in _processes(server):
        found = {name for name, value in each.environ().items() if "hidden" in value}
        assert found == set(), each.cmdline()[:3]


def test_a_program_that_spark_runs_finds_no_secret(server: SparkConnectServer) -> None:
    """The holder of the token may run one; the environment that it sees has no secret."""

    def environment(batches):  # type: ignore[no-untyped-def]  # here, so that it travels to Spark's worker by value
        import os

        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"environment": [str(dict(os.environ))]})

    spark = connect(server.url, "friend")
    rows = spark.sql("SELECT TRANSFORM(1) USING 'env' AS (line STRING)").collect()
    (variables,) = spark.range(1).mapInArrow(environment, "environment string").collect()

    assert "PATH=" in str(rows)
    assert "hidden" not in str(rows)
    assert "hidden" not in variables["environment"]
    assert "SPARK_CONNECT_AUTHENTICATE_TOKEN" not in variables["environment"]


def test_workers_find_the_stores_connection_in_a_file_of_theirs(server: SparkConnectServer) -> None:
    """It has the mode 0600, holds connections and AWS keys and nothing else."""
    (file,) = server.log.parent.glob("worker-secrets*")

    assert file.stat().st_mode & 0o777 == 0o600
    assert set(json.loads(file.read_text())) >= {"EVENTBRIDGE_CONN_STORE", "AWS_SECRET_ACCESS_KEY"}
    assert not set(json.loads(file.read_text())) & {"EVENTBRIDGE_LEDGER_URL", "GITHUB_TOKEN", "AIRFLOW_CONN_STORE"}


def test_it_listens_on_this_machine_alone(server: SparkConnectServer) -> None:
    """Every port of every process of it is one of the loopback address."""
    listening = [
        each.laddr.ip
        for process in _processes(server)
        for each in process.net_connections("inet")
        if each.status == psutil.CONN_LISTEN
    ]

    assert listening
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}


def test_the_file_of_secrets_follows_no_link(tmp_path: Path) -> None:
    """An existing file is replaced, not written through, and the new file belongs to this user."""
    elsewhere, file = tmp_path / "elsewhere", tmp_path / "secrets"
    elsewhere.write_text("kept")
    file.symlink_to(elsewhere)

    write_secrets(SECRETS, file)

    assert elsewhere.read_text() == "kept"
    assert not file.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_worker_reads_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connections of the file are known beside the environment's own."""
    write_secrets(SECRETS, tmp_path / "secrets")
    monkeypatch.setenv("EVENTBRIDGE_WORKER_SECRETS", str(tmp_path / "secrets"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "before")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "before")
    worker_variables.cache_clear()
    try:
        assert worker_variables()["EVENTBRIDGE_CONN_STORE"] == SECRETS["EVENTBRIDGE_CONN_STORE"]
        assert os.environ["AWS_SECRET_ACCESS_KEY"] == "hidden-secret"
    finally:
        worker_variables.cache_clear()


def test_the_list_of_variables_lets_no_secret_through() -> None:
    """A name that is not on it is not passed on, whatever it is called."""
    passed = drop_secrets({**SECRETS, "PATH": "/bin", "LC_ALL": "C", "PASSWORD": "x", "https_proxy": "http://h:1"})

    assert passed == {"PATH": "/bin", "LC_ALL": "C", "https_proxy": "http://h:1"}


@pytest.mark.parametrize(
    ("url", "clear"),
    [
        ("sc://127.0.0.1:1/;token=t", True),
        ("sc://127.8.0.1:1/;token=t", True),
        ("sc://[::1]:1/;token=t", True),
        ("sc://localhost:1/;token=t", True),
        ("sc://spark:1", True),
        ("sc://spark:1/;token=t", False),
        ("sc://10.0.0.1:1/;token=t", False),
        ("sc://127.0.0.1.example:1/;token=t", False),
        ("sc://localhost.example:1/;token=t", False),
        ("sc://127.0.0.1:1/;token=t;use_ssl=true", False),
        ("sc://spark:1/;token=t;use_ssl=True", False),
        ("sc://spark:1/;token=t;use_ssl=false", True),
    ],
)
def test_a_token_leaves_this_machine_by_tls(url: str, clear: bool) -> None:
    """Unless the URL itself says that it may go in clear."""
    assert is_cleartext(url) is clear


def test_use_ssl_is_one_of_two_words() -> None:
    """A typo does not switch TLS off, and the message does not repeat the token."""
    with pytest.raises(UserError, match=r"use_ssl of sc://h:1 is 'maybe'\. Write true or false\."):
        is_cleartext("sc://h:1/;token=secret;use_ssl=maybe")


SECRET_VALUES = env.random_secrets()
WHOLE = document(SECRET_VALUES)["services"]
SPARK = ("spark-master", "spark-worker", "spark-connect")


def test_in_production_only_airflows_workers_reach_spark() -> None:
    """Spark's network has them and Spark; it leads nowhere else, and Spark does not reach the backend."""
    networks = document(SECRET_VALUES)["networks"]
    on = {name: set(fields["networks"]) for name, fields in WHOLE.items()}

    assert {name for name, own in on.items() if "spark" in own} == {*SPARK, "airflow-worker"}
    assert all(on[name] == {"spark", "store"} for name in SPARK)
    assert {name for name, own in on.items() if own == {"backend"}} == {"postgresql", "valkey"}
    assert all("outside" in on[name] for name, fields in WHOLE.items() if "ports" in fields)
    assert [name for name, options in networks.items() if not (options or {}).get("internal")] == ["outside"]


@pytest.mark.parametrize("name", SPARK)
def test_in_production_spark_is_given_the_connections_it_needs(name: str) -> None:
    """Nothing of ledger, Airflow or partition is in its environment; the cluster's secret is on no command line."""
    given = WHOLE[name]["environment"]
    allowed = {"EVENTBRIDGE_CONN_STORE", "EVENTBRIDGE_CONN_KAFKA", "EVENTBRIDGE_CONN_ROCKETMQ", "_SPARK_AUTH_SECRET"}
    own = {"spark-connect": {"SPARK_CONNECT_AUTHENTICATE_TOKEN"}}.get(name, set())
    secret = {variable for variable, value in given.items() if any(each in value for each in SECRET_VALUES.values())}

    assert secret <= allowed | own
    assert {variable for variable in given if variable.startswith(("EVENTBRIDGE_", "AIRFLOW"))} <= allowed
    assert given["_SPARK_AUTH_SECRET"] == SECRET_VALUES["SPARK_SECRET"]
    assert not any(value in word for word in WHOLE[name]["command"] for value in SECRET_VALUES.values())


def test_in_production_airflow_has_the_token_of_spark_connect() -> None:
    """Its connection leads to the server with the token that the server asks for."""
    uri = WHOLE["airflow-worker"]["environment"]["AIRFLOW_CONN_EVENTBRIDGE_SPARK"]
    connection = Connection.from_text("eventbridge_spark", uri)

    assert connection.password == SECRET_VALUES["SPARK_TOKEN"]
    assert WHOLE["spark-connect"]["environment"]["SPARK_CONNECT_AUTHENTICATE_TOKEN"] == connection.password


@pytest.mark.parametrize("arguments", [["--spark", "sc://127.0.0.1:1/;token=hidden"]])
def test_a_token_on_our_own_command_line_is_refused(tmp_path: Path, arguments: list[str]) -> None:
    """`ps` shows it to every user: the message names the variable to use, and does not repeat the token."""
    rule = "{bus: b, pattern: {}, targets: {t: {type: file, path: /x}}}"
    (tmp_path / "rules.yaml").write_text(f"buses: {{b: {{source: {{type: embedded}}}}}}\nrules: {{r: {rule}}}\n")
    environ = {"EVENTBRIDGE_HOME": str(tmp_path), "EVENTBRIDGE_RULES_FOLDER": str(tmp_path)}
    command = [sys.executable, "-m", "eventbridge.cli", "deliver", "--runner", "b", "--until-idle", *arguments]
    done = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "SPARK_CONNECT_AUTHENTICATE_TOKEN" in done.stderr
    assert "hidden" not in done.stderr + done.stdout
