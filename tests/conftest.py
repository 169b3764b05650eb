"""Fixtures of every test: an environment without this product's settings, and no skipped test where CI runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import long_files
import new_ledgers
import pytest
from demo.s3_server import S3Server
from faults.tried import CRASH_MATRIX, Tried, in_all
from s3proxy.forward import Forward
from services.brokers import KINDS, Broker
from services.kafka import Kafka
from services.postgresql import Postgresql, postgresql
from services.rocketmq import RocketMQ
from spark.own_server import ENDED_SERVER, Servers

from eventbridge import fault_points
from eventbridge.spark.server import SparkConnectServer

#: The bucket that `s3_server` begins with.
BUCKET = "tests"

# Few examples, the same in every run; thousands of new ones by HYPOTHESIS_PROFILE=deep. No deadline, and no example is
# drawn too slowly: machines differ, and tests that only compute come last on theirs.
hypothesis.settings.register_profile(
    "few",
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile("deep", max_examples=5_000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "few"))


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove every setting of the product, so that a developer's shell cannot change what a test sees."""
    for name in list(os.environ):
        if name.startswith("EVENTBRIDGE_"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def s3_process() -> Iterator[S3Server]:
    """One S3 server, in a thread, for all tests of the session: its imports take a second.

    With TEST_S3_PORT, as `make test-s3` sets it, it passes everything on to the real server on that port.
    """
    port = os.environ.get("TEST_S3_PORT")
    with S3Server(application=Forward(int(port)) if port else None) as server:
        server.make_bucket(BUCKET)
        yield server


@pytest.fixture
def s3_server(s3_process: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The S3 server with a bucket `tests`, which responds well; EVENTBRIDGE_CONN_S3 is the connection to it."""
    monkeypatch.setenv("EVENTBRIDGE_CONN_S3", s3_process.connection)
    s3_process.requests.clear()
    yield s3_process
    s3_process.refuse = lambda request: None
    s3_process.lose_response = lambda request: False


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Postgresql]:
    """One PostgreSQL server for all tests of the session; each test makes its own database."""
    with postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A real Kafka broker for all tests of the session; it starts when the first one asks for it."""
    with Kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQ]:
    """A real RocketMQ for all tests of the session; it starts when the first one asks for it."""
    with RocketMQ(tmp_path_factory.mktemp("rocketmq")) as server:
        yield server


@pytest.fixture(scope="session")
def spark_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """The Spark Connect servers of the session: one, which takes 10 s to start, unless it ends by itself."""
    servers = Servers(tmp_path_factory)
    yield servers
    servers.stop()


@pytest.fixture
def spark_server(spark_servers: Servers, record_property: Callable[[str, object], None]) -> SparkConnectServer:
    """A Spark Connect server that runs; if the last test took it along, another one, and CI prints how it ended."""
    ended = spark_servers.how_it_ended()
    if ended is not None:
        record_property(ENDED_SERVER, ended)
    return spark_servers.running()


@pytest.fixture(params=KINDS)
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each kind of broker, real, for tests that hold for all of them."""
    return KINDS[request.param](request)


@pytest.fixture(autouse=True)
def no_fault_remains() -> Iterator[None]:
    """Take the fault hook out after each test."""
    yield
    fault_points.install(None)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest."""
    long_files.longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> long_files.Lines | None:
    """Let files in a line run one after the other, where each file runs in one process."""
    return long_files.Lines(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which tests were skipped: in CI none may be; and what the crash matrix was made of."""
    for report in terminalreporter.stats.get("skipped", []):
        terminalreporter.write_line(f"SKIPPED, which fails CI: {report.nodeid}")
    # From the reports: tests run in other processes than this one.
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    reported = [each for report in reports for each in getattr(report, "user_properties", ())]
    for name, value in reported:
        if name == ENDED_SERVER:
            terminalreporter.write_line(str(value))
    tried = [Tried(*value) for name, value in reported if name == CRASH_MATRIX]
    if tried:
        terminalreporter.write_line(f"crash matrix: {in_all(tried)}")


def pytest_sessionstart() -> None:
    """Take SIGINT, also where CI runs in the background and it is ignored: children would inherit that.

    And make new ledgers without running all migrations for each.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    new_ledgers.remember()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run in CI that skipped a test."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped") and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
