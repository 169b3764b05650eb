"""Says what is wrong with rule files: all that lie in a folder, or one as it would be among the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from eventbridge.decision.rule_test import failures
from eventbridge.errors import Mistake, RuleFileError, UserError
from eventbridge.rule import RuleSet
from eventbridge.rule.files import SUFFIXES
from eventbridge.rule.load import load_rule_file, load_rules

if TYPE_CHECKING:
    from eventbridge.stages.runtime.runtime import Runtime


@dataclass(frozen=True)
class RulesChecked:
    """What rule files come to: mistakes, or none and the rules."""

    mistakes: tuple[Mistake, ...]
    rules: RuleSet | None = None

    def document(self) -> dict[str, Any]:
        """Return it as `eventbridge rules check --json` prints it."""
        if self.rules is None:
            return {"mistakes": self.mistakes}
        counts = {"buses": len(self.rules.buses), "rules": len(self.rules.rules)}
        return {"mistakes": [], "hash": self.rules.hash, **counts}


def checked_folder(folder: Path, instead: tuple[Path, bytes] | None = None) -> RulesChecked:
    """Return what the rule files below a folder come to, with the tests of their rules.

    `instead`: a file, and what it would hold.
    """
    try:
        rules = load_rules(folder, look_at_paths=True, tried_by=failures, instead=instead)
    except RuleFileError as error:
        return RulesChecked(tuple(error.mistakes))
    return RulesChecked((), rules)


def checked_file(work: Runtime, name: str, content: bytes) -> RulesChecked:
    """Return what the rule files come to if one of them, new or not, holds this; nothing is written.

    Where the files do not lie on this host, and for somebody who is limited to owners, the file alone: its rules may be
    of the buses that are seen. Raises UserError for a name that is not one of a rule file.
    """
    file = PurePosixPath(name)
    if file.is_absolute() or ".." in file.parts or file.suffix not in SUFFIXES or name != str(file):
        raise UserError(
            f"{name!r} is not the name of a rule file. Write a path below the folder, such as shop/orders.yaml"
        )
    folder = work.settings.rules_folder
    if work.owners is None and work.settings.rules_from != "published" and isinstance(folder, Path):
        return checked_folder(folder, (folder / file, content))
    try:
        rules = load_rule_file(Path(name), work.rule_set().buses, content, tried_by=failures)
    except RuleFileError as error:
        return RulesChecked(tuple(error.mistakes))
    return RulesChecked((), rules)
