"""All rules of one moment, and the text that they are frozen as."""

from __future__ import annotations

import hashlib

from pydantic import Field

from eventbridge.document import parse_document, write_document
from eventbridge.rule.content import content_of, plain
from eventbridge.rule.frozen import Frozen
from eventbridge.rule.model import Bus, Rule

#: The frozen form is JSON for everyone, and lines for who knows: what stands before, between and after the rules.
_HEAD = ',"rules":{'
_TAIL = "\n}}"


class RuleSet(Frozen):
    """All buses and rules of one moment, disabled rules included; frozen as JSON in the store."""

    buses: dict[str, Bus] = Field(default_factory=dict)
    rules: dict[str, Rule] = Field(default_factory=dict)

    @property
    def hash(self) -> str:
        """Return 32 hex digits that are the same for the same content, in whatever order it was written."""
        return self.hash_of(self.to_json())

    @staticmethod
    def hash_of(text: str | bytes) -> str:
        """Return the hash of a rule set as it was frozen.

        A later product reads the same text with more defaults: its own `hash` may be another, that of the text is not.
        """
        content = text.encode() if isinstance(text, str) else text
        return hashlib.blake2b(content, digest_size=16).hexdigest()

    def to_json(self) -> str:
        """Return its frozen form: strict JSON, with a rule a line, so that a reader knows those that it has seen."""
        lines = [
            f"{write_document(name)}:{write_document(content_of(self.rules[name]))}" for name in sorted(self.rules)
        ]
        buses = {name: content_of(self.buses[name]) for name in sorted(self.buses)}
        return "".join(['{"buses":', write_document(buses), _HEAD, "\n", ",\n".join(lines), _TAIL])

    @classmethod
    def from_json(cls, text: str, known: dict[str, Rule] | None = None) -> RuleSet:
        """Read what `to_json` wrote.

        `known` holds rules by their lines: one that is there is taken and not read again. Afterwards it holds the
        rules of this set, and no others.
        """
        head, *lines = text.removesuffix(_TAIL).split("\n")
        if not text.endswith(_TAIL) or not head.endswith(_HEAD):  # frozen by a product that wrote no lines
            return cls.model_validate(plain(parse_document(text)))
        found = {} if known is None else known
        rules = [(line, found.get(line) or _rule(line)) for line in (each.removesuffix(",") for each in lines if each)]
        if known is not None:
            known.clear()
            known.update(rules)
        buses = plain(parse_document(head.removesuffix(_HEAD) + "}"))["buses"]
        return cls(buses=buses, rules={rule.name: rule for _, rule in rules})

    def runners(self) -> dict[str, str]:
        """Return each runner's bus, by runner name."""
        return dict(sorted((rule.runner, rule.bus) for rule in self.rules.values()))

    def for_runner(self, name: str) -> RuleSet:
        """Return the rules of one runner, disabled ones included, and the bus it consumes."""
        rules = {rule.name: rule for rule in self.rules.values() if rule.runner == name}
        buses = {rule.bus: self.buses[rule.bus] for rule in rules.values()}
        return RuleSet(buses=buses, rules=rules)

    def enabled(self) -> dict[str, Rule]:
        """Return the rules that events are matched against."""
        return {name: rule for name, rule in self.rules.items() if rule.enabled}

    def pools(self) -> dict[str, int | None]:
        """Return the pools the rules ask for and the slots their file gives them (None: it says nothing)."""
        pools: dict[str, int | None] = {}
        for rule in self.rules.values():
            if rule.pool is not None or rule.concurrency is not None:
                pools[rule.pool_name] = rule.concurrency or pools.get(rule.pool_name)
        return pools


def _rule(line: str) -> Rule:
    ((_, values),) = plain(parse_document(f"{{{line}}}")).items()
    return Rule.model_validate(values)
