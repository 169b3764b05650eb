"""Fixtures of the contracts: a log of each kind, its clock and one of its partitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contracts.log_sources import LOGS, PARTITIONS, AnyLog, BrokersClock, Clock, broker_of
from services.postgresql import Postgresql

from eventbridge import fault_points
from eventbridge.model.partition import Partition
from eventbridge.sources.embedded.tables import partition_of_key


@pytest.fixture
def database(postgresql_server: Postgresql) -> Iterator[str]:
    """Yield the URL of an empty database."""
    url = postgresql_server.new_database()
    yield url
    postgresql_server.drop_database(url)


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> Clock:
    """Return the clock of the log under test."""
    asked = getattr(request.node, "callspec", None)
    if asked is not None and "rocketmq" in asked.params.values():
        return BrokersClock(request.getfixturevalue("rocketmq"))
    return Clock()


@pytest.fixture(params=LOGS)
def log(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[AnyLog]:
    """Yield an empty log of each kind, with two topics of three partitions."""
    log = LOGS[request.param](request, tmp_path, clock)
    yield log
    fault_points.install(None)
    log.close()


@pytest.fixture
def partition(log: AnyLog) -> Partition:
    """Return the partition that the key "a" leads to."""
    return Partition("orders", broker_of(log), partition_of_key("a", PARTITIONS))
