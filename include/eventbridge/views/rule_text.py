"""Finds the text of a rule in its file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eventbridge.errors import RuleFileError
from eventbridge.rules import Rule, RuleSet
from eventbridge.rules.files import files_below
from eventbridge.rules.load import load_rule_file
from eventbridge.runtime.runtime import Runtime


@dataclass(frozen=True)
class RuleText:
    """The lines of a rule in a file; `line` is the number of the first."""

    file: str
    line: int
    text: str


def rule_text(runtime: Runtime, rules: RuleSet, name: str) -> RuleText | None:
    """Return the text of a rule in today's files; None if the files are not on this host, or it is not found.

    A block is the rule if it means the same when it is read alone. A rule that is written as JSON in one line is not
    found.
    """
    folder = runtime.settings.rules_folder
    if runtime.settings.rules_from == "published" or not isinstance(folder, Path):
        return None
    rule = rules.rules[name]
    for file in files_below(folder, []):
        try:
            content = file.read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            continue
        if name not in content:
            continue
        for line, text in _candidates(content, name):
            if _says(rules, rule, file, text):
                return RuleText(str(file.relative_to(folder)), line, text)
    return None


def _candidates(content: str, name: str) -> Iterator[tuple[int, str]]:
    """Yield the blocks with a key, each with the number of its first line."""
    key = re.compile(rf"""^( +)(["']?){re.escape(name)}\2 *:(?: .*)?$""", re.MULTILINE)
    for found in key.finditer(content):
        # to the next line that is indented no further
        rest = re.compile(rf"^ {{0,{len(found[1])}}}\S", re.MULTILINE).search(content, found.end())
        text = content[found.start() : rest.start() if rest else len(content)]
        yield content.count("\n", 0, found.start()) + 1, text.rstrip()


def _says(rules: RuleSet, rule: Rule, file: Path, text: str) -> bool:
    """Return whether a block defines the rule."""
    try:
        read = load_rule_file(file, rules.buses, f"rules:\n{text}\n".encode())
    except RuleFileError:
        return False
    return rule.name in read.rules and read.rules[rule.name].version == rule.version
