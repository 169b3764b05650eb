"""The help texts of commands, as the pages of docs/reference/cli show them.

`PYTHONPATH=tests python -m docs.command_help` writes them into the pages: below the heading of each command, in a block
of its own. A command without a heading gets one at the end of its group's page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from eventbridge.cli import app

FOLDER = Path(__file__).parents[2] / "docs" / "reference" / "cli"
#: The pages in the order in which a reader, and a test, goes through their examples.
ORDER = (
    "index", "init", "rules", "events", "buses", "serve", "tokens", "deliver", "status", "audit", "dead-letters",
    "redrives", "batches", "targets", "queues", "replays", "stats", "sql", "tables", "heartbeat",
    "erase", "maintain", "ledger", "backup", "quality", "schemas", "plugins", "mcp", "init-airflow", "compile",
)  # fmt: skip
_WIDTH = 100


def helps() -> Iterator[tuple[str, str]]:
    """Yield the words of each command, without `eventbridge`, and its help."""
    top = get_command(app)
    context = top.make_context(
        "eventbridge", [], resilient_parsing=True, terminal_width=_WIDTH, max_content_width=_WIDTH
    )
    yield from _below(top, context, ())


def _below(group: Any, context: Any, words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name, command in group.commands.items():
        own = command.make_context(name, [], parent=context, resilient_parsing=True)
        if hasattr(command, "commands"):
            yield from _below(command, own, (*words, name))
        else:
            lines = command.get_help(own).rstrip().splitlines()
            yield " ".join((*words, name)), "\n".join(line.rstrip() for line in lines) + "\n"


def page_of(words: str) -> Path:
    """Return the page of a command."""
    return FOLDER / f"{words.split()[0]}.md"


def block(words: str, text: str) -> str:
    """Return the block of a command's help."""
    return f"```text {words}\n{text}```\n"


def with_help(page: str, words: str, text: str) -> str:
    """Return a page with the help of one command brought up to date."""
    shown = re.compile(rf"^```text {re.escape(words)}\n.*?^```\n", re.MULTILINE | re.DOTALL)
    if shown.search(page):
        return shown.sub(lambda _: block(words, text), page, count=1)
    heading = re.compile(rf"^##? `{re.escape(words)}`\n", re.MULTILINE)
    found = heading.search(page)
    if found is None:
        return f"{page.rstrip()}\n\n## `{words}`\n\n{block(words, text)}"
    return f"{page[: found.end()]}\n{block(words, text)}{page[found.end() :]}"


if __name__ == "__main__":
    for command_words, help_text in helps():
        file = page_of(command_words)
        file.write_text(with_help(file.read_text(), command_words, help_text))
