"""Fixtures of the tests of plug-ins: an installation with a package whose types misbehave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from installed_package import install
from plug_ins.misbehaving import MODULE, POINTS

from eventbridge import plug_in_calls
from eventbridge.testing.plug_ins import Installation

Installed = Callable[..., Installation]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installed]:
    """Return a function that makes an installation with rules, where a package has misbehaving types."""
    monkeypatch.setattr(plug_in_calls, "_left", {})
    install(tmp_path / "site", monkeypatch, "acme_bad", MODULE, POINTS)
    made: list[Installation] = []

    def make(rules: str, **variables: str) -> Installation:
        made.append(Installation(tmp_path / "installation", rules, variables))
        return made[-1]

    yield make
    for each in made:
        each.__exit__(None, None, None)
