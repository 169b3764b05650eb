"""Reads the candidate of a backtest: a rule of today, an earlier version of a rule, or every rule of a file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from eventbridge.backtest.candidate import Candidate
from eventbridge.errors import NotFoundError, RuleFileError, UserError
from eventbridge.rules import Bus, Rule, RuleSet
from eventbridge.rules.files import SUFFIXES
from eventbridge.rules.load import load_rule_file
from eventbridge.runtime.runtime import Runtime
from eventbridge.similar_names import suggest
from eventbridge.views.rule_history import rules_at

#: The name of a rule file that is given as text.
_PASTED = "pasted-rules.yaml"


def read_candidate(runtime: Runtime, name: str, bus: str | None = None, *, paths: bool = False) -> Candidate:
    """Return the candidate that `name` means: RULE, RULE@VERSION, or the text of a rule file.

    `bus`: only the rules of this bus are taken; required for a file with rules of several buses. `paths`: the path of
    a rule file (`.yaml`) is taken too. Allow it only to callers with the rights of this process: to those who start a
    task or call the API, a path would show files of the host. Raises UserError: RuleFileError with every error of
    the files, NotFoundError for an unknown name.
    """
    if not name.strip():
        raise UserError(f"no candidate given. Write the name of a rule, RULE@VERSION, or {_what_of(paths)}")
    rule, at, version = name.partition("@")
    if name.lstrip().startswith(("rules:", "buses:", "#")) or "\n" in name.strip():
        name, found = _PASTED, _rules_of_file(runtime, Path(_PASTED), name.encode())
    elif Path(name).suffix in SUFFIXES or "/" in name:
        if not paths or Path(name).suffix not in SUFFIXES:
            raise UserError(f"{name!r} is not the name of a rule. Write a name, RULE@VERSION, or {_what_of(paths)}")
        found = _rules_of_file(runtime, Path(name))
    elif at:
        found = [_rule_then(runtime, rule, version)]
    else:
        found = [_rule_today(runtime, name)]
    chosen = [each for each in found if bus is None or each[0].bus == bus]
    buses = {each.name: each for _, each in chosen}
    if not chosen:
        raise UserError(f"{name} has no rule of bus {bus!r}. Its buses: {_listed(each.name for _, each in found)}")
    if len(buses) > 1:
        raise UserError(f"{name} has rules of several buses: {_listed(buses)}. Choose one: --bus NAME")
    rules = {each.name: each.model_copy(update={"enabled": True}) for each, _ in chosen}
    return Candidate(name, next(iter(buses)), RuleSet(buses=buses, rules=rules))


def _what_of(paths: bool) -> str:
    return "the path of a rule file, which ends in .yaml" if paths else "the text of a rule file. Paths are not read"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names))) or "none"


def _rule_today(runtime: Runtime, name: str) -> tuple[Rule, Bus]:
    rules = runtime.rule_files()
    if name not in rules.rules:
        raise NotFoundError(f"no rule file names a rule {name!r}. {suggest('Rules', name, rules.rules)}")
    return rules.rules[name], rules.buses[rules.rules[name].bus]


def _rule_then(runtime: Runtime, name: str, version: str) -> tuple[Rule, Bus]:
    rules = rules_at(runtime, name, version)
    return rules.rules[name], rules.buses[rules.rules[name].bus]


def _rules_of_file(runtime: Runtime, path: Path, content: bytes | None = None) -> list[tuple[Rule, Bus]]:
    try:
        buses = runtime.rule_set().buses
    except RuleFileError:  # the file itself must then define the buses of its rules
        buses = {}
    rules = load_rule_file(path, buses, content)
    if not rules.rules:
        raise UserError(f"{path} has no rules. Name a file that has some")
    return [(rule, rules.buses[rule.bus]) for rule in rules.rules.values()]
