"""Makes random patterns over a vocabulary quickly: every operator, `$or` and `$not`, alone and nested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from generative.vocabulary import EXPRESSIONS, Vocabulary

from eventbridge.event.json_document import Number
from eventbridge.matching.pattern import parse_pattern
from eventbridge.matching.pattern.nodes import Pattern

Relative = tuple[str, ...]
_KINDS: Final = (
    *("text", "text", "text", "number", "word", "prefix", "suffix", "ignore-case", "wildcard", "wildcard", "contains"),
    *("regex", "numeric", "numeric", "range", "exists", "absent", "cidr", "but", "but", "all"),
)


class RandomRules:
    """Makes patterns over one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.random = vocabulary.random
        self._below: dict[Relative, list[Relative]] = {(): vocabulary.paths}
        for path in vocabulary.paths:
            for length in range(1, len(path)):
                rest = [other[length:] for other in vocabulary.paths if other[:length] == path[:length]]
                self._below[path[:length]] = [other for other in rest if other]

    def rule_set(self, count: int) -> tuple[list[Pattern], list[dict[str, Any]]]:
        """Return patterns, parsed and as JSON; sometimes one of them is repeated."""
        written = [self.pattern() for _ in range(count)]
        for index in range(1, count):
            if self.random.random() < 0.03:
                written[index] = written[index - 1]
        return [parse_pattern(pattern) for pattern in written], written

    def pattern(self) -> dict[str, Any]:
        """Return a pattern as JSON."""
        kind = self.random.random()
        if kind < 0.01:
            return {}
        if kind < 0.03:
            return {"$or": [self._fields((), 1) for _ in range(self.random.randint(60, 75))]}
        if kind < 0.05:  # alternatives multiply
            pattern = self._object((), 1)
            for first, below in self._below.items():
                if len(first) == 1 and below and isinstance(pattern.get(first[0], {}), dict):
                    inner = pattern.setdefault(first[0], {})
                    inner["$or"] = [self._fields(first, 1) for _ in range(self.random.randint(3, 9))]
            pattern["$or"] = [self._fields((), 1) for _ in range(self.random.randint(8, 12))]
            return pattern
        pattern = self._object((), 2)
        if self.random.random() < 0.15:
            pattern["$not"] = self._object((), 1)
        return pattern

    def _object(self, above: Relative, depth: int) -> dict[str, Any]:
        """Return a non-empty sub-pattern of leaf lists, and sometimes a `$or` at any level."""
        found = self._fields(above, self.random.choice((1, 1, 2, 2, 3)))
        if depth and self.random.random() < 0.2:
            found["$or"] = self._alternatives(above, depth)
        for key, inner in found.items():
            if depth and isinstance(inner, dict) and self.random.random() < 0.15 and self._below.get((*above, key)):
                inner["$or"] = self._alternatives((*above, key), depth)
        if len(found) > 1 and "$or" in found and self.random.random() < 0.3:
            found = {"$or": found["$or"]}
        return found

    def _alternatives(self, above: Relative, depth: int) -> list[dict[str, Any]]:
        return [self._object(above, depth - 1) for _ in range(self.random.choice((2, 2, 3)))]

    def _fields(self, above: Relative, count: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for path in self.random.choices(self._below[above], k=count):
            into: Any = found
            for key in path[:-1]:
                into = into.setdefault(key, {}) if isinstance(into, dict) else None
            if isinstance(into, dict):
                into.setdefault(path[-1], self._leaf_list())
        return found

    def _leaf_list(self) -> list[Any]:
        count = self.random.choice((1, 1, 1, 2, 2, 3))
        return [self.condition(self.random.choice(_KINDS)) for _ in range(count)]

    def condition(self, kind: str, inside_all: int = 0) -> Any:
        """Return a condition of a kind; `inside_all` is how many `all` it is in."""
        vocabulary, choice = self.vocabulary, self.random.choice
        if kind in ("prefix", "suffix"):
            text = choice((vocabulary.text(), vocabulary.text()[:2], vocabulary.text()[-2:]))
            return {kind: choice((text, text, {"equals-ignore-case": vocabulary.other_case(text)}))}
        if kind == "absent":
            return {"exists": bool(inside_all)}
        if kind == "all":
            if inside_all > 1:
                return vocabulary.text()
            kinds = [choice(("prefix", "suffix", "contains", *_KINDS)) for _ in range(choice((1, 2, 2, 3)))]
            return {"all": [self.condition(inner, inside_all + 1) for inner in kinds]}
        simple: dict[str, Callable[[], Any]] = {
            "text": lambda: choice((vocabulary.text(), {"exactly": vocabulary.text()})),
            "number": self._number,
            "word": lambda: choice((None, True, False)),
            "ignore-case": lambda: {"equals-ignore-case": vocabulary.other_case(vocabulary.text())},
            "contains": lambda: {"contains": choice((vocabulary.text(), vocabulary.text()[1:3]))},
            "wildcard": lambda: {"wildcard": self._wildcard()},
            "regex": lambda: {"regex": choice(list(EXPRESSIONS))},
            "numeric": lambda: {"numeric": [choice(("=", "!=", "<", "<=", ">", ">=")), self._number()]},
            "range": self._range,
            "exists": lambda: {"exists": True},
            "cidr": lambda: {"cidr": choice(vocabulary.blocks)},
            "but": lambda: {"anything-but": self._excluded()},
        }
        return simple[kind]()

    def _range(self) -> Any:
        choice = self.random.choice
        low, high = sorted((self._number(), self._number()))
        if low == high:
            return {"numeric": [">=", low, "<=", high]}
        return {"numeric": [choice((">", ">=")), low, choice(("<", "<=")), high]}

    def _number(self) -> Number:
        number = self.vocabulary.near_number(self.random.choice(self.vocabulary.numbers))
        return Number(self.vocabulary.spelled_number(number))

    def _wildcard(self) -> str:
        parts = self.random.choices((*self.vocabulary.texts, "a", "ab", "aab", "b"), k=self.random.randint(1, 4))
        parts = [part.replace("\\", "\\\\").replace("*", "\\*")[:25].rstrip("\\") for part in parts]
        begin, end = self.random.choice((("", ""), ("*", ""), ("", "*"), ("*", "*")))
        return begin + "*".join(filter(None, parts)) + end if any(parts) else "*"

    def _excluded(self) -> Any:
        vocabulary, choice = self.vocabulary, self.random.choice
        count = choice((1, 1, 2, 3))
        kind = choice(("scalar", "scalar", "prefix", "suffix", "contains", "ignore-case", "wildcard", "cidr", "regex"))
        if kind == "scalar":
            found = [self.condition(choice(("text", "number", "word"))) for _ in range(count)]
            found = [one["exactly"] if isinstance(one, dict) else one for one in found]
        elif kind in ("prefix", "suffix", "contains"):
            found = [vocabulary.text()[:2] or "a" for _ in range(count)]
        elif kind == "ignore-case":
            found = [vocabulary.text() for _ in range(count)]
        elif kind == "wildcard":
            found = [self._wildcard() for _ in range(count)]
        else:
            found = self.random.choices(vocabulary.blocks if kind == "cidr" else list(EXPRESSIONS), k=count)
        value = found[0] if count == 1 else found
        names = {"ignore-case": "equals-ignore-case"}
        return value if kind == "scalar" else {names.get(kind, kind): value}
