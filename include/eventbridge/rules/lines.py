"""Rules by name, each parsed from its line of the frozen form on first use.

A rule set may hold 10,000 rules, and a push task needs those of its chunk: finding the lines costs a hundredth of
parsing them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from json import JSONDecoder
from typing import Any

from eventbridge.event.json_document import parse_document, write_document
from eventbridge.rules.content import content_of, plain
from eventbridge.rules.model import Rule

#: Decodes the value at the beginning of a text: the rule's name in its line.
_read_first = JSONDecoder().raw_decode


class RuleLines(Mapping[str, Rule]):
    """Rules by name, in the order of their lines, with the line of each; equal to any mapping of the same rules."""

    def __init__(self, lines: dict[str, str], read: dict[str, Rule]) -> None:
        """`lines` has the line of each rule, `rules` the rules that are parsed already."""
        self._lines = lines
        self._read = read

    @classmethod
    def of_text(cls, lines: Iterable[str], before: Mapping[str, Rule] | None = None) -> RuleLines:
        """Return the rules of frozen lines; rules parsed in `before` are reused if their lines are equal."""
        by_name = {_read_first(line)[0]: line for line in lines}
        if not isinstance(before, RuleLines):
            return cls(by_name, {})
        same = {name: rule for name, rule in before._read.items() if by_name.get(name) == before._lines[name]}
        return cls(by_name, same)

    @classmethod
    def of_rules(cls, rules: Mapping[str, Rule]) -> RuleLines:
        """Return rules with their frozen lines, in the given order."""
        if isinstance(rules, RuleLines):
            return rules
        return cls({name: _line(rule) for name, rule in rules.items()}, dict(rules))

    @classmethod
    def joined(cls, parts: Iterable[Mapping[str, Rule]]) -> RuleLines:
        """Return the rules of all parts; of two with one name the last one."""
        found = cls({}, {})
        for part in map(cls.of_rules, parts):
            found._lines.update(part._lines)
            found._read.update(part._read)
        return found

    def only(self, names: Iterable[str]) -> RuleLines:
        """Return some of the rules."""
        lines = {name: self._lines[name] for name in names}
        return RuleLines(lines, {name: rule for name, rule in self._read.items() if name in lines})

    def holding(self, text: str) -> list[Rule]:
        """Return the rules whose lines hold a text."""
        return [self[name] for name, line in self._lines.items() if text in line]

    def read_all(self) -> None:
        """Parse the remaining rules once, also for all objects derived from this one."""
        for name in self._lines:
            self[name]

    def lines(self) -> Iterable[str]:
        """Return the lines, in the order of the rules."""
        return self._lines.values()

    def sorted_lines(self) -> list[str]:
        """Return the lines in the order of the rules' names."""
        return [self._lines[name] for name in sorted(self._lines)]

    def __getitem__(self, name: str) -> Rule:
        rule = self._read.get(name)
        if rule is None:
            rule = self._read[name] = _rule(self._lines[name])
        return rule

    def __contains__(self, name: object) -> bool:
        return name in self._lines

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def __or__(self, others: Mapping[str, Rule]) -> dict[str, Rule]:
        return {**self, **others}

    def __repr__(self) -> str:
        return repr(dict(self))


def _line(rule: Rule) -> str:
    return f"{write_document(rule.name)}:{write_document(content_of(rule))}"


def _rule(line: str) -> Rule:
    ((_, values),) = plain(parse_document(f"{{{line}}}")).items()
    return Rule.model_validate(values)


def as_rules(rules: Any, validate: Any) -> Any:
    """Accept lazily parsed rules as they are; validate everything else (for pydantic)."""
    return rules if isinstance(rules, RuleLines) else validate(rules)
