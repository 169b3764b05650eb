"""docs/contributing/code-tour.md leads to files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_code_tour_names_files_that_exist() -> None:
    """Each path of the tour is a file or a folder of the package."""
    page = (ROOT / "docs" / "contributing" / "code-tour.md").read_text()
    named = re.findall(r"`([a-z_/0-9]+(?:\.py|/))`", page.replace("`include/eventbridge`", ""))

    assert len(named) > 10
    assert [path for path in named if not (ROOT / "include" / "eventbridge" / path).exists()] == []
