"""One real environment for all end-to-end tests: what it takes to start is paid once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from demo.airflow import Airflow
from demo.places import fresh, product_settings
from demo.services import Services
from end_to_end.running import Running

from eventbridge.connection import connections_from_environment
from eventbridge.settings import Settings
from eventbridge.stages.workplace import Workplace

_RULES = Path(__file__).with_name("rules")

#: Small enough that a closed pool, which costs its runner all of them and 60 s, is waited for in a test.
_SETTINGS = {
    "EVENTBRIDGE_PREPARE_BUDGET_SECONDS": "20",
    "EVENTBRIDGE_BATCH_DEADLINE_SECONDS": "12",
    "EVENTBRIDGE_PUSH_BUDGET_SECONDS": "6",
    "EVENTBRIDGE_CHUNK_MAX_DELIVERIES": "100",
    "EVENTBRIDGE_DISK_FREE_MIN_BYTES": "0",
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Start Airflow, Spark and the receiver in a folder of their own, and end every process however the tests end."""
    folder = tmp_path_factory.mktemp("environment") / "demo"
    services = Services(fresh(folder, rules_folder=_RULES, settings=_SETTINGS))
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # a run that is ended takes its services along
    try:
        services.start()
        settings = product_settings(services.places)
        with (
            closing(Workplace.open(Settings.from_mapping(settings), connections_from_environment(settings))) as work,
            closing(Airflow(services.places)) as airflow,
        ):
            yield Running(services, airflow, work)
    finally:
        services.stop()
        signal.signal(signal.SIGTERM, before)
