"""Draws rules and events that hit them about every other time, in the part of the language Event Ruler shares.

Hypothesis would need a millisecond a pair; here a seeded generator needs some microseconds. Most of what it draws is
ordinary. Some is what the two are known to respond differently, so that each class of difference is seen at work.
"""

from __future__ import annotations

import ipaddress
import json
import random
import string
from collections.abc import Iterator
from typing import Any, Final

from generative.test_generated_arrays import draw_event as draw_array_event
from generative.test_generated_arrays import draw_pattern as draw_array_pattern
from oracle.vocabulary import (
    ADDRESSES,
    BLOCKS,
    KEYS,
    PLAIN,
    RARE_KEYS,
    ROUGH,
    ROUGH_BLOCKS,
    ROUGH_CONDITIONS,
    ROUGH_NUMBERS,
)

from eventbridge.event.json_document import Number

KINDS: Final = (
    *("text", "text", "number", "word", "exactly", "prefix", "suffix", "equals-ignore-case", "wildcard"),
    *("anything-but", "anything-but", "numeric", "numeric", "exists", "exists-not", "cidr"),
)
"""What a condition may be, the more frequent ones more than once."""


class Drawing:
    """One source of rules and events; the same seed draws the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rough = 0.0  # how likely a scalar is one that is known to be judged differently

    def rules(self, count: int, events_of_each: int) -> Iterator[tuple[dict[str, Any], list[str]]]:
        """Yield patterns, each with the texts of its events."""
        for _ in range(count):
            self.rough = 0.5 if self.likely(0.15) else 0.005
            if self.likely(0.12):
                pattern = draw_array_pattern(self.random, depth=2, ors=0.2)
                trees = [draw_array_event(self.random, pattern) for _ in range(events_of_each)]
            else:
                pattern = self.pattern(self.random.choice((0, 1, 1, 2)))
                pattern = {} if self.likely(self.rough / 100) else pattern
                trees = [self.event(pattern, self.likely(0.7)) for _ in range(events_of_each)]
            yield pattern, [self.spell(tree) for tree in trees]

    def likely(self, share: float) -> bool:
        """Return whether something of that likelihood happens."""
        return self.random.random() < share

    # Patterns

    def pattern(self, depth: int) -> dict[str, Any]:
        """Draw a sub-pattern: leaf lists, objects, and now and then a `$or` among them."""
        pattern: dict[str, Any] = {}
        for key in self.random.sample(KEYS, self.random.choice((1, 1, 2, 2, 3))):
            drawn = self.random.choice(RARE_KEYS) if self.likely(self.rough / 20) else key
            pattern[drawn] = self.pattern(depth - 1) if depth and self.likely(0.4) else self.leaf_list()
        if self.likely(0.12):
            alternatives = [self.pattern(max(depth - 1, 0)) for _ in range(self.random.choice((2, 2, 3)))]
            if self.likely(0.9):  # most often none of the conditions beside it is said again inside
                alternatives = [without(alternative, pattern) for alternative in alternatives]
            if all(alternatives):
                pattern["$or"] = alternatives
        return pattern

    def leaf_list(self) -> list[Any]:
        """Draw the values of a leaf list."""
        if self.likely(self.rough / 20):
            return [self.random.choice(ROUGH_CONDITIONS)]
        return [self.condition() for _ in range(self.random.choice((1, 1, 1, 2, 3)))]

    def condition(self) -> Any:
        """Draw one condition that Event Ruler knows too."""
        kind = self.random.choice(KINDS)
        if kind in ("exactly", "prefix", "suffix", "equals-ignore-case"):
            text = self.text()
            return {kind: {"equals-ignore-case": text} if kind in ("prefix", "suffix") and self.likely(0.3) else text}
        drawn: dict[str, Any] = {
            "text": self.text,
            "number": self.number,
            "word": lambda: self.random.choice((True, False, None)),
            "wildcard": lambda: {"wildcard": self.wildcard()},
            "anything-but": lambda: {"anything-but": self.excluded()},
            "numeric": lambda: {"numeric": self.comparison()},
            "exists": lambda: {"exists": True},
            "exists-not": lambda: {"exists": False},
            "cidr": lambda: {"cidr": self.random.choice(ROUGH_BLOCKS if self.likely(self.rough / 10) else BLOCKS)},
        }
        return drawn[kind]()

    def excluded(self) -> Any:
        """Draw what anything-but takes in Event Ruler: texts or numbers, or one operator's texts."""
        kind = self.random.choice(("text", "number", "prefix", "suffix", "equals-ignore-case", "wildcard"))
        draw = {"number": self.number, "wildcard": self.wildcard}.get(kind, self.text)
        values = [draw() for _ in range(self.random.choice((1, 1, 2, 3)))]
        if kind in ("prefix", "suffix"):
            values = [value or "a" for value in values]  # an empty text is an error there
        value = values[0] if len(values) == 1 and self.likely(0.7) else values
        return value if kind in ("text", "number") else {kind: value}

    def comparison(self) -> list[Any]:
        """Draw a comparison or a range that holds a number."""
        one, other = self.number(), self.number()
        if self.likely(0.5) or one == other:
            return [self.random.choice(("=", "<", "<=", ">", ">=")), one]
        low, high = sorted((one, other))
        return [self.random.choice((">", ">=")), low, self.random.choice(("<", "<=")), high]

    def wildcard(self) -> str:
        """Draw pieces of text, escaped, with stars between some of them."""
        text = self.text().replace("\\", "\\\\").replace("*", "\\*")
        if "\\" in text:
            return f"*{text}" if self.likely(0.5) else f"{text}*"
        stars = {self.random.randint(0, len(text)) for _ in range(self.random.choice((0, 1, 1, 2)))}
        return "".join(("*" if at in stars else "") + text[at : at + 1] for at in range(len(text) + 1))

    # Scalars

    def text(self) -> str:
        """Draw a string."""
        if self.likely(self.rough):
            return self.random.choice(ADDRESSES if self.likely(0.2) else ROUGH)
        if self.likely(0.5):
            return self.random.choice(PLAIN)
        return "".join(self.random.choice("aabbcAB") for _ in range(self.random.choice((1, 2, 2, 3, 4))))

    def number(self) -> Number:
        """Draw a number, most often of at most 15 digits, spelled in one of many ways."""
        if self.likely(self.rough / 2):
            return Number(self.random.choice(ROUGH_NUMBERS))
        if self.likely(0.1):
            digits = "".join(self.random.choice(string.digits) for _ in range(self.random.randint(6, 14)))
            return Number(f"{self.random.choice(('', '-'))}{self.random.choice('123')}{digits}")
        value = str(self.random.randint(-9, 9) or 10)
        if self.likely(0.1):
            return Number(self.random.choice(("0", "-0", "0.0", "0e5")))
        form = self.random.choice(
            ("{}", "{}", "{}", "{}.0", "{}.5", "{}.25", "{}e0", "{}0E-1", "{}e+2", "{}e-7", "{}.10")
        )
        return Number(form.format(value))

    def scalar(self) -> Any:
        """Draw any scalar."""
        return self.random.choice(
            (self.text, self.text, self.number, lambda: self.random.choice((True, False, None)))
        )()

    # Events

    def event(self, pattern: dict[str, Any], good: bool) -> dict[str, Any]:
        """Draw an event around a pattern: one that meets it as far as can be, or one with faults here and there."""
        event: dict[str, Any] = {}
        for key, value in self.chosen(pattern).items():
            if not good and self.likely(0.1):
                continue
            if isinstance(value, dict):
                drawn = self.branch(value, good)
            elif self.likely(0.8 if good else 0.4) and {"exists": False} in value and self.likely(0.8):
                continue
            else:
                drawn = self.leaf(value, good or self.likely(0.6))
            event[key] = drawn
        if self.likely(0.2):
            event.setdefault(self.random.choice(KEYS), self.scalar())
        if any("." in key for key in event) and self.likely(0.5):  # a path for a key with a dot, or the reverse
            key = next(key for key in event if "." in key)
            head, _, tail = key.partition(".")
            event = {other: value for other, value in event.items() if other != key} | {head: {tail: event[key]}}
        return event

    def chosen(self, pattern: dict[str, Any]) -> dict[str, Any]:
        """Return a pattern's keys with those of one alternative of each `$or`, most often."""
        parts = {key: value for key, value in pattern.items() if key != "$or"}
        if "$or" in pattern:
            alternative = self.chosen(self.random.choice(pattern["$or"]))
            parts = parts | alternative if self.likely(0.5) else alternative | parts
        return parts

    def branch(self, pattern: dict[str, Any], good: bool) -> Any:
        """Draw an object, or arrays of objects one of which is whole, or none."""
        if self.likely(0.6):
            return self.event(pattern, good)
        elements: list[Any] = [
            self.event(pattern, good),
            *(self.event(pattern, False) for _ in range(self.random.randint(0, 2))),
        ]
        if not good and self.likely(0.4):
            elements = [{key: value} for element in elements for key, value in element.items()]
        if self.likely(0.15):
            elements = [[element] if self.likely(0.5) else element for element in elements]
        if self.likely(0.15):
            elements.append(self.scalar())
        self.random.shuffle(elements)
        return elements

    def leaf(self, conditions: list[Any], good: bool) -> Any:
        """Draw a leaf that meets a leaf list, or nearly does, alone or in an array."""
        value = self.witness(self.random.choice(conditions))
        if not good:
            value = self.near(value)
        if self.likely(0.8):
            return value
        values = [value, *(self.scalar() for _ in range(self.random.randint(0, 2)))]
        self.random.shuffle(values)
        return self.random.choice((values, values, [values], [{"a": self.scalar()}, *values], []))

    def near(self, value: Any) -> Any:
        """Draw something like a value, but not it."""
        if isinstance(value, str) and value and self.likely(0.7):
            at = self.random.randrange(len(value))
            return self.random.choice(
                (value[:at] + value[at + 1 :], value.swapcase(), value + "a", "a" + value, value[::-1])
            )
        if isinstance(value, Number) and self.likely(0.5):
            return self.random.choice((value.text, Number("1"), Number("0"), Number("-0.5"), self.number()))
        return self.scalar()

    def witness(self, condition: Any) -> Any:
        """Draw a scalar that a condition most often accepts."""
        if not isinstance(condition, dict):
            if condition in ADDRESSES:
                return self.random.choice(ADDRESSES)
            return self.respelled(condition) if isinstance(condition, Number) else condition
        ((operator, argument),) = condition.items()
        folded = isinstance(argument, dict) and operator in ("prefix", "suffix")
        text = argument["equals-ignore-case"] if folded else argument
        if operator == "equals-ignore-case" or folded:
            text = self.random.choice((text, text.swapcase(), text.upper(), text.lower(), text.casefold()))
        tail = self.random.choice(("", '"', "ß", "😀") if self.likely(self.rough / 2) else ("", "a", "bc"))
        if operator in ("prefix", "suffix"):
            text = text.replace('"', "") if self.likely(self.rough) else text
            return text + tail if operator == "prefix" else tail + text
        if operator == "wildcard":
            return (
                text.replace("\\\\", "\0")
                .replace("\\*", "\1")
                .replace("*", tail)
                .replace("\0", "\\")
                .replace("\1", "*")
            )
        if operator == "cidr":
            return self.address(argument)
        if operator == "numeric":
            return self.between(argument)
        return text if operator in ("exactly", "equals-ignore-case", "contains") else self.scalar()

    def between(self, bounds: list[Any]) -> Number:
        """Draw a number at or beside a bound."""
        bound = self.random.choice(bounds[1::2])
        if bound.text in ROUGH_NUMBERS or self.likely(0.5):
            return self.respelled(bound)
        away = self.random.choice((0.5, 1, 3)) * (1 if bounds[0][0] == ">" and bound is bounds[1] else -1)
        return Number(repr(round(float(bound.text) + away, 9)))

    def respelled(self, number: Number) -> Number:
        """Draw another spelling of a number."""
        plain = number.text.isdecimal() and number.text != "0"
        return (
            Number(self.random.choice((number.text, f"{number.text}.0", f"{number.text}e0", f"{number.text}0e-1")))
            if plain
            else number
        )

    def address(self, block: str) -> str:
        """Draw an address of a block or not far from it, now and then in a spelling of its own."""
        network = ipaddress.ip_network(block, strict=False)
        spread = min(
            network.num_addresses + (self.likely(0.2) * 8), 2**network.max_prefixlen - int(network.network_address)
        )
        address = (
            ipaddress.ip_address(int(network.network_address) + self.random.randrange(spread)) if spread else network[0]
        )
        if isinstance(address, ipaddress.IPv6Address):
            return self.random.choice((address.compressed, address.exploded, address.compressed.upper()))
        if self.likely(self.rough / 4):
            return self.random.choice(
                (f"0{address}", f"::ffff:{address}", f"::ffff:{int(address) >> 16:x}:{int(address) & 0xFFFF:x}")
            )
        return str(address)

    # Texts

    def spell(self, value: Any) -> str:
        """Write a document with some freedom in escapes and spaces, very rarely with a key twice."""
        if isinstance(value, dict):
            pairs = [f"{self.quote(key)}:{self.spell(inner)}" for key, inner in value.items()]
            if pairs and self.likely(self.rough / 50):
                again = f"{self.quote(next(iter(value)))}:{self.spell(self.scalar())}"
                pairs = [again, *pairs] if self.likely(0.5) else [*pairs, again]
            return "{" + (", " if self.likely(0.2) else ",").join(pairs) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(self.spell, value)) + "]"
        if isinstance(value, Number):
            return value.text
        return self.quote(value) if isinstance(value, str) else json.dumps(value)

    def quote(self, text: str) -> str:
        """Write a string plainly, in ASCII, or with escapes where none are needed."""
        style = self.random.random()
        if style < 0.9:
            return json.dumps(text, ensure_ascii=style < 0.3)
        return (
            '"' + "".join(json.dumps(c)[1:-1] if ord(c) > 126 or c in '"\\' else f"\\u{ord(c):04X}" for c in text) + '"'
        )


def without(alternative: dict[str, Any], pattern: dict[str, Any]) -> dict[str, Any]:
    """Return an alternative without the keys that stand beside its `$or`."""
    return {key: value for key, value in alternative.items() if key not in pattern}
