"""Checks rule files: all files of a folder, or one new or changed file together with the others."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from eventbridge.errors import RuleError, RuleFileError, UserError
from eventbridge.matching.pattern import parse_pattern, pattern_warnings
from eventbridge.rules import Rule, RuleSet
from eventbridge.rules.files import SUFFIXES
from eventbridge.rules.load import Trial, load_rule_file, load_rules
from eventbridge.rules.tests import RuleTest, failures

if TYPE_CHECKING:
    from eventbridge.runtime.runtime import Runtime


#: How long the tests of the rules in a file that a caller sent may take.
_TEST_SECONDS = 20.0


@dataclass(frozen=True)
class RulesChecked:
    """The result of checking rule files: their errors or, without any, the rules."""

    errors: tuple[RuleError, ...]
    rules: RuleSet | None = None

    def document(self) -> dict[str, Any]:
        """Return it as `eventbridge rules check --json` prints it."""
        if self.rules is None:
            return {"errors": self.errors}
        counts = {"buses": len(self.rules.buses), "rules": len(self.rules.rules)}
        return {"errors": [], "hash": self.rules.hash, **counts, "warnings": self.warnings()}

    def warnings(self) -> list[str]:
        """Return a warning for each condition of a pattern that never matches, or not in every content mode."""
        if self.rules is None:
            return []
        return [
            f"rule {rule.name}: {warning}"
            for rule in self.rules.rules.values()
            for warning in pattern_warnings(parse_pattern(rule.pattern))
        ]


def checked_folder(
    folder: Path,
    file_folders: Sequence[Path] | None,
    instead: tuple[Path, bytes] | None = None,
    tried_by: Trial = failures,
    *,
    relative: bool = False,
) -> RulesChecked:
    """Check the rule files below a folder and run the tests of their rules.

    `file_folders`: folders that file targets may write below, whose paths are checked; None: no local path is checked.
    `instead`: a file and its content to check in place of the one on disk. `tried_by`: runs one test of a rule and
    returns its errors. `relative`: errors name files relative to the folder.
    """
    try:
        rules = load_rules(
            folder, checked=True, file_folders=file_folders, tried_by=tried_by, instead=instead, relative=relative
        )
    except RuleFileError as error:
        errors = tuple(error.errors)
        if relative:  # also in errors about unreadable files and folders
            errors = tuple(replace(each, file=os.path.relpath(folder / each.file, folder)) for each in errors)
        return RulesChecked(errors)
    return RulesChecked((), rules)


def checked_file(runtime: Runtime, name: str, content: bytes) -> RulesChecked:
    """Check the rule files as if one of them, new or existing, had this content; nothing is written.

    Errors name files relative to the folder. If the files are not on this host, or the caller is limited to owners,
    only this file is read: its rules may use the buses that the caller sees. Paths of file targets are not checked,
    as any caller could send the text. Raises UserError for an invalid name of a rule file.
    """
    file = PurePosixPath(name)
    if file.is_absolute() or ".." in file.parts or file.suffix not in SUFFIXES or name != str(file):
        raise UserError(
            f"{name!r} is not the name of a rule file. Write a path below the folder, such as shop/orders.yaml"
        )
    folder = runtime.settings.rules_folder
    tried_by = _in_time()
    if runtime.owners is None and runtime.settings.rules_from != "published" and isinstance(folder, Path):
        return checked_folder(folder, None, (folder / file, content), tried_by, relative=True)
    try:
        rules = load_rule_file(Path(name), runtime.rule_set().buses, content, tried_by=tried_by)
    except RuleFileError as error:
        return RulesChecked(tuple(error.errors))
    return RulesChecked((), rules)


def _in_time() -> Trial:
    """Return a function that runs one test of a rule, and refuses further tests once their time is over."""
    ends_at = time.monotonic() + _TEST_SECONDS

    def tried(rule: Rule, test: RuleTest) -> Iterator[RuleError]:
        if time.monotonic() < ends_at:
            yield from failures(rule, test)
            return
        message = f"the tests of all rules take longer than {_TEST_SECONDS:g} s"
        yield test.place("matches").error(message, "Write fewer tests, or run `eventbridge rules check`")

    return tried
