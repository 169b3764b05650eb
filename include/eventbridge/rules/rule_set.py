"""Defines the rule set and reads and writes its frozen form, whose rules are parsed on first use.

A rule set may hold 10,000 rules, but a push task needs only the rules of its chunk. Splitting the frozen form into
lines takes a hundredth of the time that parsing all rules takes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from json import JSONDecoder
from typing import Annotated, Any

from pydantic import Field, WrapValidator

from eventbridge.errors import NewerFormatError
from eventbridge.event.json_document import parse_document, write_document
from eventbridge.rules.frozen import FrozenModel, content_of, plain
from eventbridge.rules.model import Bus, Owner, Rule, Runner

#: Decodes the JSON value at the beginning of a string; each rule's line begins with its name.
_read_first = JSONDecoder().raw_decode

#: The format of frozen rule sets that this version writes, and the newest that it reads. A rule set that names no
#: format has format 1.
_FORMAT = 1
_TAIL = "\n}}"


class RuleLines(Mapping[str, Rule]):
    """Rules by name, parsed from frozen lines on first use; the order is that of the lines."""

    def __init__(self, lines: dict[str, str], read: dict[str, Rule]) -> None:
        """`lines` has the line of each rule, and `read` has the rules that have already been parsed."""
        self._lines = lines
        self._read = read

    @classmethod
    def from_text(cls, lines: Iterable[str], before: Mapping[str, Rule] | None = None) -> RuleLines:
        """Return the rules of frozen lines; a rule that `before` has parsed is reused if its line is the same."""
        by_name = {_read_first(line)[0]: line for line in lines}
        if not isinstance(before, RuleLines):
            return cls(by_name, {})
        same = {name: rule for name, rule in before._read.items() if by_name.get(name) == before._lines[name]}
        return cls(by_name, same)

    @classmethod
    def from_rules(cls, rules: Mapping[str, Rule]) -> RuleLines:
        """Return rules together with their frozen lines, in the given order."""
        if isinstance(rules, RuleLines):
            return rules
        return cls({name: _line(rule) for name, rule in rules.items()}, dict(rules))

    @classmethod
    def join(cls, parts: Iterable[Mapping[str, Rule]]) -> RuleLines:
        """Return the rules of all parts; if several have the same name, the last one is used."""
        found = cls({}, {})
        for part in map(cls.from_rules, parts):
            found._lines.update(part._lines)
            found._read.update(part._read)
        return found

    def only(self, names: Iterable[str]) -> RuleLines:
        """Return the rules of these names. Raises KeyError for an unknown one."""
        lines = {name: self._lines[name] for name in names}
        return RuleLines(lines, {name: rule for name, rule in self._read.items() if name in lines})

    def holding(self, text: str) -> list[Rule]:
        """Return the rules whose lines contain a string."""
        return [self[name] for name, line in self._lines.items() if text in line]

    def read_all(self) -> None:
        """Parse the remaining rules, so that objects derived from this one need not parse them again."""
        for name in self._lines:
            self[name]

    def lines(self) -> Iterable[str]:
        """Return the lines, in the order of the rules."""
        return self._lines.values()

    def sorted_lines(self) -> list[str]:
        """Return the lines, sorted by the rules' names."""
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
    """Return `RuleLines` as they are, without parsing them, and validate everything else (for pydantic)."""
    return rules if isinstance(rules, RuleLines) else validate(rules)


#: The text before the first rule of a frozen rule set. The set is JSON with one rule on each line.
_HEAD = ',"rules":{'


class RuleSet(FrozenModel):
    """All buses and rules at one moment, including disabled rules; the store holds it as frozen JSON.

    `modes` has the configured runners by name, and `quotas` has the owners' quotas by name. For rules that were read
    from files, `expressions` has the sizes of their regular expressions; the frozen JSON does not contain them.
    """

    buses: dict[str, Bus] = Field(default_factory=dict)
    rules: Annotated[Mapping[str, Rule], WrapValidator(as_rules)] = Field(default_factory=dict)
    modes: dict[str, Runner] = Field(default_factory=dict)
    quotas: dict[str, Owner] = Field(default_factory=dict)
    expressions: dict[str, int] = Field(default_factory=dict, repr=False)

    @property
    def hash(self) -> str:
        """Return a hash of the frozen form, as 32 hex digits; it does not depend on the order of buses and rules."""
        return self.hash_of(self.to_json())

    @staticmethod
    def hash_of(text: str | bytes) -> str:
        """Return the hash of a frozen rule set's text.

        A later version may add defaults when it reads the text, so the `hash` of the rule set that it reads may differ.
        """
        content = text.encode() if isinstance(text, str) else text
        return hashlib.blake2b(content, digest_size=16).hexdigest()

    def to_json(self) -> str:
        """Return the frozen form: strict JSON with one rule on each line, so that readers can reuse parsed rules."""
        lines = RuleLines.from_rules(self.rules).sorted_lines()
        buses = {name: content_of(self.buses[name]) for name in sorted(self.buses)}
        # left out if empty, so that the frozen form and the hash are as in versions without runners and owners
        owners = f',"owners":{_text(self.quotas)}' if self.quotas else ""
        runners = f',"runners":{_text(self.modes)}' if self.modes else ""
        head = [f'{{"format":{_FORMAT},"buses":', write_document(buses), owners, runners, _HEAD]
        return "".join([*head, "\n", ",\n".join(lines), _TAIL])

    @classmethod
    def from_json(cls, text: str, before: RuleSet | None = None) -> RuleSet:
        """Return the rule set that `to_json` froze; its rules are parsed on first use, or taken from `before` if equal.

        Raises NewerFormatError for a newer format.
        """
        head, *lines = text.removesuffix(_TAIL).split("\n")
        if not text.endswith(_TAIL) or not head.endswith(_HEAD):  # frozen by a version that did not write lines
            return cls.model_validate(_read_head(text, text))
        first = _read_head(head.removesuffix(_HEAD) + "}", text)
        known = None if before is None else before.rules
        rules = RuleLines.from_text((line.removesuffix(",") for line in lines if line), known)
        named = {"modes": first.get("runners", {}), "quotas": first.get("owners", {})}
        return cls(buses=first["buses"], rules=rules, **named)

    def to_lines(self) -> str:
        """Return the content as lines: one each for buses, runners, owners and expressions, then one per rule."""
        buses = write_document({name: content_of(bus) for name, bus in self.buses.items()})
        expressions = json.dumps(self.expressions)
        named = [buses, _text(self.modes), _text(self.quotas), expressions]
        return "\n".join([*named, *RuleLines.from_rules(self.rules).lines()])

    @classmethod
    def from_lines(cls, text: str) -> RuleSet:
        """Return the rule set that `to_lines` wrote, with all rules parsed."""
        buses, modes, quotas, expressions, *lines = text.split("\n")
        rules = RuleLines.from_text(lines)
        rules.read_all()
        return cls(
            buses=plain(parse_document(buses)),
            rules=rules,
            modes=plain(parse_document(modes)),
            quotas=plain(parse_document(quotas)),
            expressions=json.loads(expressions),
        )

    @classmethod
    def join(cls, parts: Iterable[RuleSet]) -> RuleSet:
        """Return the content of all parts as one rule set; if several definitions have the same name, the last
        one is used."""
        every = list(parts)
        buses = {name: bus for part in every for name, bus in part.buses.items()}
        modes = {name: mode for part in every for name, mode in part.modes.items()}
        quotas = {name: quota for part in every for name, quota in part.quotas.items()}
        expressions = {text: size for part in every for text, size in part.expressions.items()}
        rules = RuleLines.join(part.rules for part in every)
        return cls(buses=buses, rules=rules, modes=modes, quotas=quotas, expressions=expressions)

    def mode_of(self, runner: str) -> Runner:
        """Return the configuration of a runner; the default is batch mode."""
        return self.modes.get(runner, Runner())

    def streaming_task_seconds(self) -> dict[str, float]:
        """Return how many seconds a streaming task runs, for each runner in streaming mode that has rules."""
        found = {name: each for name, each in self.modes.items() if each.mode == "streaming"}
        return {name: found[name].streaming.task_duration for name in self.runners() if name in found} if found else {}

    def runners(self) -> dict[str, str]:
        """Return each runner's bus, by runner name."""
        return dict(sorted((rule.runner, rule.bus) for rule in self.rules.values()))

    def for_runner(self, name: str) -> RuleSet:
        """Return the rules of one runner, including disabled ones, with its configuration, its bus and the owners'
        quotas."""
        own = self.only([rule.name for rule in RuleLines.from_rules(self.rules).values() if rule.runner == name])
        modes = {name: self.modes[name]} if name in self.modes else {}
        return RuleSet(buses=own.buses, rules=own.rules, modes=modes, quotas=own.quotas)

    def only(self, names: Collection[str]) -> RuleSet:
        """Return the rules of these names, with their buses and their owners' quotas, but without runners."""
        rules = RuleLines.from_rules(self.rules).only(list(names))
        owners = {self.owner_of(rule) for rule in rules.values()}
        quotas = {owner: quota for owner, quota in self.quotas.items() if owner in owners}
        return RuleSet(buses={rule.bus: self.buses[rule.bus] for rule in rules.values()}, rules=rules, quotas=quotas)

    def owner_of(self, rule: Rule) -> str | None:
        """Return the owner of a rule: its own owner, else the owner of its bus, or None if neither has one."""
        bus = self.buses.get(rule.bus)
        return rule.owner or (bus.owner if bus is not None else None)

    def owned_by(self, owners: Collection[str]) -> RuleSet:
        """Return the rules of these owners, and the buses that the owners own or these rules use."""
        found = RuleLines.from_rules(self.rules)
        own = {name for name, bus in self.buses.items() if bus.owner in owners}
        texts = ['"owner":"', *(f'"bus":{write_document(name)}' for name in sorted(own))]
        likely = {rule.name: rule for text in texts for rule in found.holding(text)}
        rules = found.only([name for name in found if name in likely and self.owner_of(likely[name]) in owners])
        shown = own | {rule.bus for rule in rules.values()}
        runners = {rule.runner for rule in rules.values()}
        buses = {name: bus for name, bus in self.buses.items() if name in shown}
        modes = {name: mode for name, mode in self.modes.items() if name in runners}
        quotas = {name: quota for name, quota in self.quotas.items() if name in owners}
        return RuleSet(buses=buses, rules=rules, modes=modes, quotas=quotas)

    def owners(self) -> list[str]:
        """Return all owners that quotas, buses or rules name, sorted."""
        named = {*self.quotas, *(bus.owner for bus in self.buses.values())} | {
            rule.owner for rule in self.with_field("owner", '"')
        }
        return sorted(owner for owner in named if owner is not None)

    def without(self, names: Collection[str]) -> RuleSet:
        """Return the rule set without the rules of these names, but with all buses, runners and quotas."""
        if not names:
            return self
        found = RuleLines.from_rules(self.rules)
        rules = found.only([name for name in found if name not in names])
        return RuleSet(buses=self.buses, rules=rules, modes=self.modes, quotas=self.quotas)

    def disabling(self, names: Iterable[str]) -> RuleSet:
        """Return the rule set with the rules of these names disabled; the versions of the rules stay the same."""
        rules = {name: self.rules[name].model_copy(update={"enabled": False}) for name in names if name in self.rules}
        return RuleSet.join([self, RuleSet(rules=rules)]) if rules else self

    def with_field(self, name: str, begins: str = "{") -> list[Rule]:
        """Return every rule that has a field or whose targets have it, and perhaps others; the remaining rules stay
        unparsed.

        `begins` is the beginning of the field's JSON value, by default that of an object.
        """
        known = self.rules
        return known.holding(f'"{name}":{begins}') if isinstance(known, RuleLines) else list(known.values())

    def shadows(self) -> frozenset[tuple[str, str]]:
        """Return the targets that are shadows of others, as (rule, target)."""
        rules = self.with_field("shadow_of", begins='"')
        return frozenset((rule.name, name) for rule in rules for name, each in rule.targets.items() if each.shadow_of)

    def enabled(self) -> dict[str, Rule]:
        """Return the rules that are not disabled; events are matched against these."""
        return {name: rule for name, rule in self.rules.items() if rule.enabled}

    def pools(self) -> dict[str, int | None]:
        """Return the rules' own pools, with the slots that the rule files give them, or None if they give none."""
        pools: dict[str, int | None] = {}
        for rule in self.rules.values():
            if rule.pool is not None or rule.concurrency is not None:
                pools[rule.pool_name] = rule.concurrency or pools.get(rule.pool_name)
        return pools


def _text(named: Mapping[str, FrozenModel]) -> str:
    return write_document({name: content_of(named[name]) for name in sorted(named)})


def _read_head(document: str, text: str) -> dict[str, Any]:
    """Return the values of a frozen `document` without its format. Raises NewerFormatError, naming the hash of
    `text`."""
    values: dict[str, Any] = plain(parse_document(document))
    found = values.pop("format", _FORMAT)
    if found > _FORMAT:
        raise NewerFormatError(f"The rule set {RuleSet.hash_of(text)}", found, _FORMAT)
    return values
