"""Makes random events for rules, with a leaf for most of a rule's conditions, in objects, arrays and arrays of arrays.

It writes JSON text directly, because the spelling of an event causes half of the errors: escapes in keys and values,
duplicate keys, white space, and all forms of numbers.
"""

from __future__ import annotations

from typing import Any, Final

from generative.vocabulary import EXPRESSIONS, Decimal, Vocabulary, plain

from eventbridge.event.json_document import Number

_SPACES: Final = ("", "", "", "", " ", "\n", " \t\r\n", " " * 40)


class _Node:
    """The planned content of an event at a path."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self.keys: dict[str, _Node] = {}


class RandomEvents:
    """Makes events for the patterns of one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.random = vocabulary.random
        self._space = ""
        self._arrays = True

    def event(self, rules: list[dict[str, Any]]) -> str:
        """Return the text of an event that these rules match or almost match; rarely, it is nested too deeply."""
        choice = self.random.choice
        self._space, self._arrays = choice(_SPACES), choice((True, False))
        root = _Node()
        for rule in rules:
            self._add(root, rule)
        for _ in range(choice((0, 1, 2, 3))):
            node = root
            for key in choice(self.vocabulary.paths):
                node = node.keys.setdefault(key, _Node())
            node.values.append(self.vocabulary.scalar_text())
        return self._space + self._object(root) + self._space

    # --- the content ---

    def _add(self, node: _Node, pattern: dict[str, Any]) -> None:
        for key, inner in pattern.items():
            if key == "$or":
                for alternative in self.random.sample(inner, self.random.choice((1, 1, 1, 2))):
                    self._add(node, alternative)
            elif key == "$not":
                if self.random.random() < 0.4:
                    self._add(node, inner)
            elif self.random.random() < 0.93:
                below = node.keys.setdefault(key, _Node())
                if isinstance(inner, dict):
                    self._add(below, inner)
                elif (text := self._witness(self.random.choice(inner))) is not None:
                    below.values.append(text)

    def _witness(self, condition: Any) -> str | None:
        """Return the text of a scalar that is likely to meet a condition, None for no value."""
        if self.random.random() < 0.04:
            return self.vocabulary.scalar_text()
        if condition is None or isinstance(condition, bool):
            return {None: "null", True: "true", False: "false"}[condition]
        if isinstance(condition, Number):
            return self._number(condition)
        if isinstance(condition, str):
            return self._string(condition)
        ((operator, argument),) = condition.items()
        if operator == "numeric":
            return self._number(self.random.choice(argument[1::2]))
        if operator == "exists":
            return self.vocabulary.scalar_text() if argument or self.random.random() < 0.3 else None
        if operator == "anything-but":
            return self.vocabulary.scalar_text() if self.random.random() < 0.7 else self._excluded(argument)
        if operator == "all":
            return self._every(argument)
        return self._string(self._text_for(operator, argument))

    def _every(self, conditions: list[Any]) -> str | None:
        """Return a string that begins as one condition requires and ends as another does."""
        texts = {"prefix": "", "contains": "", "suffix": ""}
        for condition in conditions:
            if not isinstance(condition, dict) or next(iter(condition)) not in texts:
                return self._witness(self.random.choice(conditions))
            ((operator, argument),) = condition.items()
            texts[operator] = argument if isinstance(argument, str) else argument["equals-ignore-case"]
        return self._string("".join(texts.values()))

    def _excluded(self, argument: Any) -> str | None:
        if isinstance(argument, list):
            return self._witness(self.random.choice(argument))
        if isinstance(argument, dict):
            ((operator, texts),) = argument.items()
            return self._witness({operator: self.random.choice(texts) if isinstance(texts, list) else texts})
        return self._witness(argument)

    def _text_for(self, operator: str, argument: Any) -> str:
        vocabulary, choice = self.vocabulary, self.random.choice
        text = argument if isinstance(argument, str) else vocabulary.other_case(argument["equals-ignore-case"])
        if operator == "prefix":
            return text + choice(("", vocabulary.text()))
        if operator == "suffix":
            return choice(("", vocabulary.text())) + text
        if operator == "contains":
            return choice(("", vocabulary.text())) + text + choice(("", vocabulary.text()))
        if operator == "equals-ignore-case":
            return vocabulary.other_case(text)
        if operator == "cidr":
            return vocabulary.address(text)
        if operator == "regex":
            return choice(EXPRESSIONS[text])
        if operator == "wildcard":
            runs = text.replace("\\\\", "\x01").replace("\\*", "\x02").split("*")
            filled = runs[0] + "".join(choice(("", "", "a", runs[0], vocabulary.text())) + run for run in runs[1:])
            return filled.replace("\x01", "\\").replace("\x02", "*")
        return text

    def _string(self, text: str) -> str:
        if self.random.random() < 0.12:
            text = self.vocabulary.near_text(text)
        return self.vocabulary.spelled_text(text)

    def _number(self, number: Number) -> str:
        mantissa, _, exponent = number.text.lower().partition("e")
        whole, _, fraction = mantissa.lstrip("-").partition(".")
        sign = "-" if mantissa[0] == "-" else ""
        exact: Decimal = plain(sign, whole + fraction, int(exponent or 0) - len(fraction))
        return self.vocabulary.spelled_number(self.vocabulary.near_number(exact))

    # --- the spelling ---

    def _value(self, node: _Node) -> str:
        """Write the scalars and objects at a node, in an array if there are several and sometimes otherwise."""
        if not self._arrays:
            return self._object(node) if node.keys else self.random.choice(node.values or ["{}"])
        values = list(node.values)
        if self.random.random() < 0.1:
            values.append(self.vocabulary.scalar_text())
        if node.keys:
            values += self._objects(node) if self.random.random() < 0.35 else [self._object(node)]
        shape = self.random.random()
        if shape < 0.05:
            values.append(self.random.choice(("[]", "{}", "[[]]", "[{}]")))
        if shape < 0.1 and values:
            values = [self._array(values[:1]), *values[1:]]
        if shape < 0.002:
            depth = self.random.randint(100, 130)
            return "[" * depth + ",".join(values) + "]" * depth
        if len(values) == 1 and shape < 0.8:
            return values[0]
        if len(values) > 1 or self.random.random() < 0.8:
            self.random.shuffle(values)
            return self._array(values)
        return self._array([self._array(values)])

    def _objects(self, node: _Node) -> list[str]:
        """Write the keys of a node as elements of an array: together, twice, or each in a separate element."""
        way = self.random.randrange(4)
        if way == 0:
            return [self._object(node), self._object(node)]
        if way == 1:
            return [self._array([self._object(node)]), self._object(node)]
        apart = []
        for key, inner in node.keys.items():
            one = _Node()
            one.keys[key] = inner
            apart.append(self._object(one))
        return apart if way == 2 else [*apart, self._object(node)]

    def _array(self, values: list[str]) -> str:
        return f"[{self._space}" + f"{self._space},".join(values) + f"{self._space}]"

    def _object(self, node: _Node) -> str:
        members = []
        spelled, space = self.vocabulary.spelled_text, self._space
        keys = list(node.keys)
        self.random.shuffle(keys)
        for key in keys:
            if self.random.random() < 0.05:  # the next value replaces it
                members.append(f"{spelled(key)}{space}:{self._decoy(node.keys[key])}")
            members.append(f"{spelled(key)}{space}:{space}{self._value(node.keys[key])}")
            if self.random.random() < 0.02:
                members.append(f"{spelled(key)}:{self._decoy(node.keys[key])}")
        if self.random.random() < 0.1:
            members.append(f"{spelled(self.vocabulary.text())}:{self._array([self.vocabulary.scalar_text()] * 2)}")
        return "{" + space + f"{space},".join(members) + space + "}"

    def _decoy(self, node: _Node) -> str:
        return self.random.choice((self.vocabulary.scalar_text(), "{}", "[]", self._value(node)))
