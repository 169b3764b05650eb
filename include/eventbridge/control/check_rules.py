"""Checks rule files: all files of a folder, or one new or changed file, alone or together with the others."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from eventbridge.bounded_call import call_bounded
from eventbridge.config.target_locations import TargetLocations
from eventbridge.errors import RuleError, RuleFileError, UserError
from eventbridge.matching.pattern import parse_pattern, pattern_warnings
from eventbridge.rules import Bus, Rule, RuleSet
from eventbridge.rules.bounds import MAX_ERRORS, MAX_SECONDS, cut
from eventbridge.rules.files import SUFFIXES
from eventbridge.rules.load import load_rule_file, load_rules
from eventbridge.rules.tests import RuleTest, failures

if TYPE_CHECKING:
    from eventbridge.runtime.runtime import Runtime


#: The maximum CPU time, in seconds, to read a file that a caller sent and to run the tests of its rules.
CHECK_SECONDS: Final = 20.0


@dataclass(frozen=True)
class RulesChecked:
    """The result of checking rule files: their errors or, if there are none, the rules."""

    errors: tuple[RuleError, ...]
    rules: RuleSet | None = None
    tests: int = 0  # of rules, all of which have passed if there are no errors

    def document(self) -> dict[str, Any]:
        """Return the result as `eventbridge rules check --json` prints it."""
        if self.rules is None:
            return {"errors": self.errors}
        counts = {"buses": len(self.rules.buses), "rules": len(self.rules.rules), "tests": self.tests}
        return {"errors": [], "rule_set": self.rules.hash, **counts, "warnings": self.warnings()}

    def warnings(self) -> list[str]:
        """Return a warning for each condition that can never match, or that cannot match in every content mode."""
        if self.rules is None:
            return []
        return [
            f"rule {rule.name}: {warning}"
            for rule in self.rules.rules.values()
            for warning in pattern_warnings(parse_pattern(rule.pattern))
        ]


def check_folder(
    folder: Path,
    target_locations: TargetLocations | None,
    instead: tuple[Path, bytes] | None = None,
    *,
    relative: bool = False,
) -> RulesChecked:
    """Check the rule files in a folder, and run the tests of their rules.

    `target_locations` is where targets may write; if it is None, this is not checked. `instead` is a file and the
    content to check in place of the file on disk. If `relative`, errors name files relative to the folder.
    """
    tests = _CountedTests()
    try:
        rules = load_rules(
            folder,
            checked=True,
            target_locations=target_locations,
            tried_by=tests.failures,
            instead=instead,
            relative=relative,
        )
    except RuleFileError as error:
        errors = tuple(error.errors)
        if relative:  # also in errors about unreadable files and folders
            errors = tuple(replace(each, file=os.path.relpath(folder / each.file, folder)) for each in errors)
        return RulesChecked(errors)
    return RulesChecked((), rules, tests.count)


class _CountedTests:
    """Runs tests of rules, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def failures(self, rule: Rule, test: RuleTest) -> Iterator[RuleError]:
        self.count += 1
        return failures(rule, test)


def check_file(runtime: Runtime, name: str, content: bytes) -> dict[str, Any]:
    """Check the rule files as if one of them, new or existing, had this content. Nothing is written.

    Returns what `eventbridge rules check --json` prints. Errors name files relative to the folder. If the files are not
    on this host, or if the caller is limited to owners, only this file is checked, and its rules may use the buses that
    the caller may see. Paths of file targets are not checked, so that no caller can probe the folders of the host.
    Raises UserError if the file name is invalid, or if checking the file takes too much time or memory.
    """
    file = PurePosixPath(name)
    if file.is_absolute() or ".." in file.parts or file.suffix not in SUFFIXES or name != str(file):
        raise UserError(
            f"{name!r} is not the name of a rule file. Write a path below the folder, such as shop/orders.yaml"
        )
    folder = runtime.settings.rules_folder
    is_whole = runtime.owners is None and runtime.settings.rules_from != "published" and isinstance(folder, Path)
    buses = {} if is_whole else runtime.rule_set().buses
    return call_bounded(
        _check_file,
        folder if is_whole else None,
        buses,
        Path(name),
        content,
        seconds=CHECK_SECONDS,
        remedy="Split the file, or check it with `eventbridge rules check`",
    )


def _check_file(folder: Path | None, buses: Mapping[str, Bus], file: Path, content: bytes) -> dict[str, Any]:
    """Return the result for a file in a folder or, if `folder` is None, for the file alone with these buses."""
    if folder is not None:
        checked = check_folder(folder, None, (folder / file, content), relative=True)
    else:
        tests = _CountedTests()
        try:
            rules = load_rule_file(file, buses, content, tried_by=tests.failures)
            checked = RulesChecked((), rules, tests.count)
        except RuleFileError as error:
            checked = RulesChecked(tuple(error.errors))
    found = checked.document()
    return found | {"warnings": [cut(each) for each in found["warnings"][:MAX_ERRORS]]} if checked.rules else found


def read_sent_rules(file: Path, buses: Mapping[str, Bus], content: bytes) -> RuleSet:
    """Return the rules in a file that a caller sent.

    Raises RuleFileError with its errors, and UserError if reading it takes too much time or memory.
    """
    remedy = "Send fewer rules, or only the one to compare"
    read = call_bounded(_read_rules, file, buses, content, seconds=MAX_SECONDS, remedy=remedy)
    if isinstance(read, RuleSet):
        return read
    raise RuleFileError(read)


def _read_rules(file: Path, buses: Mapping[str, Bus], content: bytes) -> RuleSet | list[RuleError]:
    try:
        return load_rule_file(file, buses, content)
    except RuleFileError as error:
        return list(error.errors)
