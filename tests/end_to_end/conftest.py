"""Real environments for the end-to-end tests, one per module, as a start takes minutes."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from demo.airflow import Airflow
from demo.config import ROOT, RULES_FOLDER, USER, new_config, product_settings
from demo.ports import reserve
from demo.services import Services
from end_to_end.mortal import MORTAL_PORT, MortalServer
from end_to_end.running import QUOTA, RunningEnvironment
from end_to_end.secrets import GUARDED

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.runtime.open import open_runtime

_RULES = Path(__file__).with_name("rules")

#: Ten loops a second, as in the demo, take a scheduler 8 CPU-seconds a minute while nothing happens; three take 4. A
#: stage begins a tenth of a second later.
_FEW_LOOPS = {"AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3"}

#: Short timeouts: a test waits for all of them and 60 s when a pool is closed.
_SETTINGS = {
    "EVENTBRIDGE_PREPARE_TIMEOUT": "20",
    "EVENTBRIDGE_BATCH_TIMEOUT": "12",
    "EVENTBRIDGE_PUSH_TIMEOUT": "6",
    "EVENTBRIDGE_CHUNK_MAX_DELIVERIES": "100",
    "EVENTBRIDGE_DISK_MIN_FREE_SIZE": "0",
    "EVENTBRIDGE_SEGMENT_INTERVAL": "1",  # also in a bucket: a test waits for the first responses of a push
    **GUARDED,
    **_FEW_LOOPS,
}

#: For environments whose DAGs do not change: parsing DAG files every 30 s takes a tenth of a CPU.
_RARELY_PARSED = {"AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "120"}

#: Small chunks, so that a backlog takes several batches, whose order a test can check.
_SMALL_CHUNKS = {"EVENTBRIDGE_CHUNK_MAX_DELIVERIES": "40"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEnvironment]:
    """Start Airflow, Spark and the receiver in a temporary folder; stop every process at the end."""
    with _environment(
        tmp_path_factory.mktemp("environment") / "demo", _RULES / "surviving", "file", _SETTINGS
    ) as running:
        yield running


@pytest.fixture(scope="module")
def healing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningEnvironment, MortalServer]]:
    """Start an environment with its own S3 server for the store, and a target's server that can be killed."""
    folder = tmp_path_factory.mktemp("environment")
    port = reserve()
    rules = folder / "rules"
    rules.mkdir()
    for file in (_RULES / "healing").glob("*.yaml"):
        (rules / file.name).write_text(file.read_text().replace(f"127.0.0.1:{MORTAL_PORT}", f"127.0.0.1:{port}"))
    with (
        _environment(folder / "demo", rules, "s3", {**_SETTINGS, **_SMALL_CHUNKS, **_RARELY_PARSED}) as running,
        closing(MortalServer(port, running.config.received)) as mortal,
    ):
        mortal.start()
        yield running, mortal


@pytest.fixture(scope="module")
def operating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEnvironment]:
    """Start an environment with targets that do not fail, for operators' actions in Airflow's pages."""
    with _environment(
        tmp_path_factory.mktemp("environment") / "demo", _RULES / "operating", "file", {**_SETTINGS, **_RARELY_PARSED}
    ) as running:
        yield running


@pytest.fixture(scope="module")
def loops() -> Mapping[str, str]:
    """How often the scheduler of `directed` loops; a module that measures times has its own."""
    return _FEW_LOOPS


@pytest.fixture(scope="module")
def directed(tmp_path_factory: pytest.TempPathFactory, loops: Mapping[str, str]) -> Iterator[RunningEnvironment]:
    """Start an environment with batches that are late after 6 s, a target that takes 15 s, and a quota.

    It has DAGs of users too, those of examples/dags among them, publishes changes in Airflow, and has the connection
    `jobs`, with which rules start DAGs.
    """
    folder = tmp_path_factory.mktemp("environment")
    dags = shutil.copytree(ROOT / "dags", folder / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    own = [Path(__file__).with_name(name) for name in ("load_orders_dag.py", "started_dags.py")]
    for dag in (*own, *(ROOT / "examples" / "dags").glob("*.py")):
        shutil.copy(dag, dags)
    settings = {**_RARELY_PARSED, **loops, "EVENTBRIDGE_BATCH_LATE_AFTER": "6", "EVENTBRIDGE_DISK_MIN_FREE_SIZE": "0"}
    settings |= {"EVENTBRIDGE_STORE_MAX_SIZE": str(QUOTA), "EVENTBRIDGE_AIRFLOW_BUS": "airflow"}
    settings["AIRFLOW__CORE__DAGS_FOLDER"] = str(dags)
    with _environment(folder / "demo", _RULES / "directed", "file", settings, jobs=True) as running:
        yield running


@pytest.fixture(scope="module")
def heaped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEnvironment]:
    """Start an environment with a streaming runner and a small backlog limit."""
    settings = {**_RARELY_PARSED, "EVENTBRIDGE_DISK_MIN_FREE_SIZE": "0"}
    with _environment(tmp_path_factory.mktemp("environment") / "demo", _RULES / "heaped", "file", settings) as running:
        yield running


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEnvironment]:
    """Start the environment of `make up`, with the shipped rules and its settings."""
    settings = {"EVENTBRIDGE_DISK_MIN_FREE_SIZE": "0", **_FEW_LOOPS}
    with _environment(tmp_path_factory.mktemp("environment") / "demo", RULES_FOLDER, "file", settings) as running:
        yield running


@contextmanager
def _environment(
    folder: Path, rules: Path, store: str, settings: Mapping[str, str], *, jobs: bool = False
) -> Iterator[RunningEnvironment]:
    config = new_config(folder, rules_folder=rules, settings=dict(settings), store=store)
    if jobs:
        jobs_connection = json.dumps(
            {"conn_type": "http", "host": config.url, "login": USER, "password": config.password}
        )
        config.settings.update(AIRFLOW_CONN_JOBS=jobs_connection, EVENTBRIDGE_CONN_JOBS=jobs_connection)
    services = Services(config)
    before = signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # a test run that is terminated stops its services
    try:
        services.start()
        given = product_settings(services.config)
        with (
            closing(open_runtime(Settings.from_mapping(given), connections_from_environment(given))) as runtime,
            closing(Airflow(services.config)) as airflow,
        ):
            yield RunningEnvironment(services, airflow, runtime)
    finally:
        services.stop()
        signal.signal(signal.SIGTERM, before)
