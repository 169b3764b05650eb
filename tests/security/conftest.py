"""What several attacks share: a server of the API for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from api.server import Installation, Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the API; the tests of one file share it."""
    with Server(Installation(tmp_path_factory.mktemp("attacked"))) as running:
        yield running
