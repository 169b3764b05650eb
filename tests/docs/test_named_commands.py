"""Every `eventbridge` command that a page, a message or a docstring names exists, with the options that it names."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docs.command_help import block, helps, page_of
from typer.core import TyperGroup
from typer.main import get_command

from eventbridge.cli import app

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "cli" / "index.md"
APP: Any = get_command(app)
#: Inline code of Markdown and docstrings, or of HTML; it may go over the end of a line.
_CODE = re.compile(r"(?<!`)`([^`]{3,300}?)`(?!`)|<code>([^<]+)</code>")
_WORD = re.compile(r"[a-z]+(-[a-z]+)*")


def texts() -> list[Path]:
    """Return the files whose texts users read: pages, the package, DAGs, the demo.

    The changelog and decision records describe the past.
    """
    command = [
        "git",
        "ls-files",
        "*.md",
        "include/*",
        "dags/*",
        "demo/*",
        "deploy/*",
        "Makefile",
        "docker-compose.yaml",
    ]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    past = ("CHANGELOG.md", "docs/contributing/decisions/")
    found = [ROOT / name for name in listed if not name.startswith(past)]
    return [path for path in found if path.is_file() and path.suffix in {".md", ".py", ".html", ".yaml", ".sh", ""}]


def named(text: str) -> Iterator[list[str]]:
    """Yield the words of each command in a text, without `eventbridge`; `a|b` is one command each."""
    for match in _CODE.finditer(text):
        words = re.sub(r'["\']\s*\n\s*f?["\']', "", match[1] or match[2]).split()
        if words[:1] == ["eventbridge"]:
            words = words[1:]
        elif len(words) < 2 or words[1] == "is" or not isinstance(APP.commands.get(words[0]), TyperGroup):
            continue
        if words and _WORD.fullmatch(words[0].split("|")[0]):
            alternatives = [each for each in words[:2] if "|" in each and re.fullmatch(r"[a-z|-]+", each)]
            for one in alternatives[0].split("|") if alternatives else [""]:
                yield [one if alternatives and each == alternatives[0] else each for each in words]


def error_in(words: list[str]) -> str | None:
    """Return what of a command does not exist; None if all does."""
    command, rest = APP, words
    while isinstance(command, TyperGroup) and rest and rest[0] in command.commands:
        command, rest = command.commands[rest[0]], rest[1:]
    if isinstance(command, TyperGroup) and rest and _WORD.fullmatch(rest[0]):
        return f"no command {rest[0]!r}"
    known = {option for each in command.params for option in each.opts} | {"--help", "-h"}
    options = [found[0] for each in rest if (found := re.match(r"--[a-z][a-z-]*", each))]
    if command is APP:
        known |= {"--install-completion", "--show-completion", "--json"}
    return next((f"no option {each}" for each in options if each not in known), None)


def leaves(group: Any, before: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield every command that can be given, as its words."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from leaves(command, (*before, name))
        else:
            yield " ".join((*before, name))


def test_every_command_that_is_named_exists() -> None:
    """A command in inline code has the words and options that the command line has."""
    found = [(path, words) for path in texts() for words in named(path.read_text())]
    wrong = [
        f"{path.relative_to(ROOT)}: {' '.join(words)}: {said}" for path, words in found if (said := error_in(words))
    ]

    assert len(found) > 200
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("`eventbridge rules lists`", "no command 'lists'"),
        ("`eventbridge replays start --resume`", "no option --resume"),
        ("`dead-letters lst --rule x`", "no command 'lst'"),
        ("<code>eventbridge frobnicate</code>", "no command 'frobnicate'"),
        ("`rules pause|rseume`", "no command 'rseume'"),
    ],
)
def test_a_command_that_does_not_exist_is_found(text: str, said: str) -> None:
    """The search sees a wrong word, a wrong option and a wrong alternative."""
    assert said in [error_in(words) for words in named(text)]


def test_the_list_of_commands_is_whole() -> None:
    """The table at the head of docs/reference/cli/index.md names every command, and no other."""
    head = PAGE.read_text().partition("## Common behaviour")[0]
    listed = set()
    for row in re.findall(r"^\| (.*?) \|", head, re.MULTILINE):
        group = ""
        for name in re.findall(r"`([a-z -]+)`", row):
            words = name.split()
            group, name = (words[0], name) if len(words) > 1 or not group else (group, f"{group} {name}")
            listed.add(name)

    assert listed == set(leaves(APP))


@pytest.mark.parametrize(("words", "text"), list(helps()), ids=[words for words, _ in helps()])
def test_a_page_shows_the_help_of_each_command(words: str, text: str) -> None:
    """The help on the page of a command's group is that of the command."""
    shown = block(words, text) in page_of(words).read_text()

    assert shown, "run: PYTHONPATH=tests python -m docs.command_help"
