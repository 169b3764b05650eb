"""Says what is wrong with rule files: all that lie in a folder, or one as it would be among the others."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from eventbridge.decision.rule_test import failures
from eventbridge.errors import RuleError, RuleFileError, UserError
from eventbridge.pattern import parse_pattern, pattern_warnings
from eventbridge.rule import Rule, RuleSet
from eventbridge.rule.files import SUFFIXES
from eventbridge.rule.load import Trial, load_rule_file, load_rules
from eventbridge.rule.read_tests import RuleTest

if TYPE_CHECKING:
    from eventbridge.stages.runtime.runtime import Runtime


#: How long the tests of rules may take of which somebody sent a file.
_TEST_SECONDS = 20.0


@dataclass(frozen=True)
class RulesChecked:
    """What rule files come to: errors, or none and the rules."""

    errors: tuple[RuleError, ...]
    rules: RuleSet | None = None

    def document(self) -> dict[str, Any]:
        """Return it as `eventbridge rules check --json` prints it."""
        if self.rules is None:
            return {"errors": self.errors}
        counts = {"buses": len(self.rules.buses), "rules": len(self.rules.rules)}
        return {"errors": [], "hash": self.rules.hash, **counts, "warnings": self.warnings()}

    def warnings(self) -> list[str]:
        """Return a sentence for each condition of a pattern that matches nothing, or not in every mode."""
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
    """Return what the rule files below a folder come to, with the tests of their rules.

    `file_folders`: those that file targets may write below, which are looked at; None: no path of this machine is.
    `instead`: a file, and what it would hold. `tried_by`: says what is wrong with a rule by one of its tests.
    `relative`: errors name files relative to the folder.
    """
    try:
        rules = load_rules(
            folder, checked=True, file_folders=file_folders, tried_by=tried_by, instead=instead, relative=relative
        )
    except RuleFileError as error:
        errors = tuple(error.errors)
        if relative:  # those too of files and folders that could not be read
            errors = tuple(replace(each, file=os.path.relpath(folder / each.file, folder)) for each in errors)
        return RulesChecked(errors)
    return RulesChecked((), rules)


def checked_file(runtime: Runtime, name: str, content: bytes) -> RulesChecked:
    """Return what the rule files come to if one of them, new or not, holds this; nothing is written.

    Errors name files relative to the folder. Where the files do not lie on this host, and for a caller who is limited
    to owners, the file alone is read: its rules may be of the buses that the caller sees. What is at the paths of file
    targets is not told: the text is anybody's. Raises UserError for a name that is not one of a rule file.
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
    """Return what tries rules by their tests, and refuses the tests that are left once their time is over."""
    ends_at = time.monotonic() + _TEST_SECONDS

    def tried(rule: Rule, test: RuleTest) -> Iterator[RuleError]:
        if time.monotonic() < ends_at:
            yield from failures(rule, test)
            return
        message = f"the tests of all rules take longer than {_TEST_SECONDS:g} s"
        yield test.place("matches").error(message, "Write fewer, or run `eventbridge rules check`")

    return tried
