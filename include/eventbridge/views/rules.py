"""Returns the versions of rules, with the changes of each, and the text of a rule in its file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from difflib import unified_diff
from pathlib import Path

from eventbridge.errors import NotFoundError, RuleFileError, StoreError, UserError
from eventbridge.model.cursor import read_number_cursor, write_name_cursor
from eventbridge.model.rule_state import RuleChange
from eventbridge.rules import Rule, RuleSet
from eventbridge.rules.files import files_below
from eventbridge.rules.load import load_rule_file
from eventbridge.runtime.runtime import Runtime
from eventbridge.similar_names import suggest
from eventbridge.store.rule_sets import frozen_rules

#: The maximum number of versions on a page, each with its diff.
MAX_VERSIONS = 10


@dataclass(frozen=True)
class RuleVersion:
    """A version of a rule: when it came into force, and its change as the lines of a diff.

    `version` is empty if the rule was removed. `diff` is empty for the first version; `error` is why the change is
    unknown, or "".
    """

    version: str
    since: datetime
    diff: tuple[str, ...]
    error: str


def rule_versions(runtime: Runtime, rule: str) -> list[RuleVersion]:
    """Return the newest versions of a rule, each with its changes; none if no batch was planned with the rule.

    A change is the diff of the rules as JSON with all defaults filled in.
    """
    found, _ = rule_version_page(runtime, rule, MAX_VERSIONS)
    return found


def rule_version_page(
    runtime: Runtime, rule: str, limit: int, after: str | None = None
) -> tuple[list[RuleVersion], str | None]:
    """Return at most `limit` versions of a rule after a cursor, and the cursor of the next page, None on the last page.

    Raises UserError for an invalid cursor.
    """
    numbered = runtime.ledger.rules.numbered_changes(rule, limit + 1, read_number_cursor(after) if after else None)
    following = write_name_cursor(str(numbered[limit - 1][0])) if len(numbered) > limit else None
    changes = [change for _, change in numbered]
    found = []
    for newer, older in zip(changes[:limit], [*changes[1:], None], strict=False):
        diff, error = _diff(runtime, rule, older, newer)
        found.append(RuleVersion(newer.version, newer.at, diff, error))
    return found, following


def _diff(runtime: Runtime, rule: str, older: RuleChange | None, newer: RuleChange) -> tuple[tuple[str, ...], str]:
    if older is None:
        return (), ""
    try:
        before, after = _lines(runtime, rule, older), _lines(runtime, rule, newer)
    except StoreError as error:
        return (), str(error)
    return tuple(unified_diff(before, after, older.version, newer.version, lineterm="", n=2)), ""


def _lines(runtime: Runtime, rule: str, change: RuleChange) -> list[str]:
    if not change.version:
        return []
    document = json.loads(frozen_rules(runtime.store, change.rule_set).to_json())["rules"][rule]
    return json.dumps(document, indent=2, ensure_ascii=False).splitlines()


def rule_history(runtime: Runtime, rule: str | None, limit: int) -> list[RuleChange]:
    """Return the changes of a rule, or of all rules, newest first. Raises NotFoundError for a rule without changes."""
    found = runtime.ledger.rules.changes(rule, limit)
    if rule is not None and not found:
        raise _no_history_error(runtime, rule)
    return found


def rule_change_page(
    runtime: Runtime, rule: str | None, limit: int, after: str | None
) -> tuple[list[RuleChange], str | None]:
    """Return at most `limit` changes after a cursor, and the cursor of the next page, or None on the last page.

    Raises NotFoundError for a rule without changes, UserError for an invalid cursor.
    """
    before = read_number_cursor(after) if after else None
    found = runtime.ledger.rules.numbered_changes(rule, limit + 1, before)
    if rule is not None and before is None and not found:
        raise _no_history_error(runtime, rule)
    following = write_name_cursor(str(found[limit - 1][0])) if len(found) > limit else None
    return [change for _, change in found[:limit]], following


def _no_history_error(runtime: Runtime, rule: str) -> NotFoundError:
    message = f"the rule {rule!r} has no history: no batch was planned with it"
    with suppress(UserError):  # a history can be read even while the rule files have errors
        rules = runtime.rule_set().rules
        if rule not in rules:
            message = f"no rule file defines a rule {rule!r}, and no batch was planned with one. "
            message += suggest("Rules", rule, rules)
    return NotFoundError(message)


def rules_at(runtime: Runtime, rule: str, version: str) -> RuleSet:
    """Return a rule set that contains the version of a rule that begins with `version`.

    Raises NotFoundError, which lists the versions, if no version begins with it, or several do.
    """
    changes = [each for each in rule_history(runtime, rule, 1_000) if each.version]
    fitting = {each.version: each.rule_set for each in changes if version and each.version.startswith(version)}
    if len(fitting) != 1:
        versions = ", ".join(dict.fromkeys(each.version for each in changes))
        what = "several versions" if fitting else "no version"
        raise NotFoundError(f"the rule {rule!r} has {what} {version!r}. Versions, newest first: {versions}")
    return frozen_rules(runtime.store, next(iter(fitting.values())))


@dataclass(frozen=True)
class RuleText:
    """The lines of a rule in a file; `line` is the number of the first line."""

    file: str
    line: int
    text: str


def rule_text(runtime: Runtime, rules: RuleSet, name: str) -> RuleText | None:
    """Return the text of a rule in the current files; None if the files are not on this host, or the rule is not found.

    A block is the rule's text if, read alone, it defines the same version of the rule. A rule that is written as JSON
    on one line is not found.
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
            if _defines_rule(rules, rule, file, text):
                return RuleText(str(file.relative_to(folder)), line, text)
    return None


def _candidates(content: str, name: str) -> Iterator[tuple[int, str]]:
    """Yield the blocks whose key is the name of the rule, each with the number of its first line."""
    key = re.compile(rf"""^( +)(["']?){re.escape(name)}\2 *:(?: .*)?$""", re.MULTILINE)
    for found in key.finditer(content):
        # The block ends before the next line that is not indented further than the key.
        rest = re.compile(rf"^ {{0,{len(found[1])}}}\S", re.MULTILINE).search(content, found.end())
        text = content[found.start() : rest.start() if rest else len(content)]
        yield content.count("\n", 0, found.start()) + 1, text.rstrip()


def _defines_rule(rules: RuleSet, rule: Rule, file: Path, text: str) -> bool:
    """Return whether a block defines the rule."""
    try:
        read = load_rule_file(file, rules.buses, f"rules:\n{text}\n".encode())
    except RuleFileError:
        return False
    return rule.name in read.rules and read.rules[rule.name].version == rule.version
