"""Fixtures of the ledger's unit tests."""

from __future__ import annotations

from pathlib import Path

import new_ledgers
import pytest
from contracts.ledger_samples import Clock
from unit.ledger.ledger_file import url

from eventbridge.ledger import Ledger, revision


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the file of a ledger that was made and closed."""
    made = tmp_path / "ledger.sqlite"
    Ledger.open(url(made), Clock()).close()
    return made


@pytest.fixture
def migrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every ledger of a test made by the migrations themselves."""
    assert isinstance(revision._upgrade, new_ledgers.Remembered)
    monkeypatch.setattr(revision, "_upgrade", revision._upgrade.migrate)
