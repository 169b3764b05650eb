"""The ledger in a PostgreSQL database keeps the contract of every ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from contracts.ledger_contract import LedgerContract
from contracts.ledger_samples import Clock
from services.postgresql import Postgresql

from eventbridge.ledger import Ledger


@pytest.fixture(scope="module")
def empty_ledger(postgresql_server: Postgresql) -> Iterator[str]:
    """Return the name of a database with a ledger that is made once, as making it takes longer than a test."""
    url = postgresql_server.new_database()
    Ledger.migrate(url)
    yield url.rpartition("/")[2]
    postgresql_server.drop_database(url)


class TestLedgerOnPostgresql(LedgerContract):
    """The whole contract, on a real server."""

    @pytest.fixture
    def open_ledger(self, postgresql_server: Postgresql, empty_ledger: str) -> Iterator[Callable[[Clock], Ledger]]:
        """Return what opens the test's ledger."""
        url = postgresql_server.new_database(of=empty_ledger)
        yield lambda clock: Ledger.open(url, clock=clock)
        postgresql_server.drop_database(url)
