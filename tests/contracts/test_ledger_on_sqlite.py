"""The ledger in a SQLite file keeps the contract of every ledger."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from contracts.ledger_contract import LedgerContract
from contracts.ledger_samples import Clock

from eventbridge.ledger import Ledger


@pytest.fixture(scope="module")
def empty_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a ledger that is made once, as making it takes longer than a test."""
    file = tmp_path_factory.mktemp("ledger") / "empty.sqlite"
    Ledger.open(f"sqlite:///{file}").close()
    return file


class TestLedgerOnSqlite(LedgerContract):
    """The whole contract, on a file."""

    @pytest.fixture
    def open_ledger(self, empty_ledger: Path, tmp_path: Path) -> Callable[[Clock], Ledger]:
        """Return what opens the test's ledger."""
        file = tmp_path / "ledger.sqlite"
        shutil.copyfile(empty_ledger, file)
        return lambda clock: Ledger.open(f"sqlite:///{file}", clock=clock)
