"""README.md's tour by itself, for `make test-python`; `make test` reads docs/command-line.md on in the same shell."""

from __future__ import annotations

from pathlib import Path

from docs.session import run_page

PAGE = Path(__file__).parents[2] / "README.md"


def test_the_commands_of_the_tour_do_what_it_says(tmp_path: Path) -> None:
    """From the first rule file to a dead letter: rules, bus, Spark, ledger and store, each once."""
    wrong = run_page(PAGE.read_text(), tmp_path)

    assert wrong == [], "\n\n".join(wrong)
