"""A runtime with an empty ledger and store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from eventbridge.config.settings import Settings
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    settings = Settings.from_mapping({"EVENTBRIDGE_HOME": str(tmp_path)})
    with closing(open_runtime(settings, lambda name: pytest.fail(name))) as opened:
        yield opened
