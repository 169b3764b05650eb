"""README.md and the page of the first rule, for `make test-python`; `make test` also runs the pages of commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.session import run_page

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["README.md", "docs/tutorials/first-rule.md"])
def test_the_commands_of_the_page_do_what_it_says(name: str, tmp_path: Path) -> None:
    """From the first rule file to a dead letter: rules, bus, Spark, ledger and store, each once."""
    wrong = run_page((ROOT / name).read_text(), tmp_path)

    assert wrong == [], "\n\n".join(wrong)
