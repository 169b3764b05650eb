"""The page of the first rule by itself, for `make test-python`; `make test` runs the command line's page after it."""

from __future__ import annotations

from pathlib import Path

from docs.session import run_page

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "first-rule.md"


def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    """From the first rule file to a dead letter: rules, bus, Spark, ledger and store, each once."""
    wrong = run_page(PAGE.read_text(), tmp_path)

    assert wrong == [], "\n\n".join(wrong)
