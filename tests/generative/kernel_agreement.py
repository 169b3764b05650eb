"""Compares the kernel's results with the reference matcher's, rule by rule and event by event."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
from generative.random_events import RandomEvents
from generative.random_rules import RandomRules
from generative.vocabulary import Vocabulary

from eventbridge.errors import EventError
from eventbridge.event.json_document import parse_document
from eventbridge.matching import Matcher, Matches, compile_rules
from eventbridge.matching.kernel.program import FEW_PATHS
from eventbridge.matching.pattern import write_pattern
from eventbridge.matching.pattern.nodes import Pattern
from eventbridge.matching.reference import flatten, matches_leaves


class Agreement(NamedTuple):
    """The result of a comparison; each difference names the pattern, the event, and the two responses."""

    pairs: int
    matched: int
    handed_back: int
    differences: list[str]

    def plus(self, other: Agreement) -> Agreement:
        """Return the sum of both comparisons."""
        return Agreement(*[one + more for one, more in zip(self, other, strict=True)])


NOTHING = Agreement(0, 0, 0, [])


def results(found: Matches) -> list[list[int] | None]:
    """Return the rules that each event matches in ascending order, None for a malformed event."""
    malformed = set(found.malformed.tolist())
    offsets = found.offsets.tolist()
    return [
        None if event in malformed else sorted(found.rules[offsets[event] : offsets[event + 1]].tolist())
        for event in range(len(offsets) - 1)
    ]


def expected_result(patterns: Sequence[Pattern], event: bytes) -> list[int] | None:
    """Return the rules that an event matches in the reference matcher, None if it is malformed."""
    try:
        leaves = flatten(parse_document(event))
    except EventError:
        return None
    return [rule for rule, pattern in enumerate(patterns) if matches_leaves(pattern, leaves)]


def compare(patterns: Sequence[Pattern], events: Sequence[bytes], matcher: Matcher | None = None) -> Agreement:
    """Compare both matchers' results for every rule and every event."""
    matcher = matcher or compile_rules(patterns)
    found = matcher.match(pa.array(events, pa.binary()))
    differences = []
    matched = 0
    for event, result in zip(events, results(found), strict=True):
        expected = expected_result(patterns, event)
        matched += len(expected or ())
        if result == expected:
            continue
        if result is None or expected is None:
            differences.append(f"event {event!r}: kernel {result}, reference {expected}")
            continue
        differences += [
            f"pattern {write_pattern(patterns[rule])}, event {event!r}: the kernel says {rule in result}"
            for rule in sorted(set(result) ^ set(expected))
        ]
    return Agreement(len(patterns) * len(events), matched, found.handed_back, differences)


def made(seed: int, rules: int, events: int) -> tuple[list[Pattern], list[bytes]]:
    """Return a random rule set and events made for its rules, which depend only on the seed."""
    vocabulary = Vocabulary(random.Random(seed))
    patterns, written = RandomRules(vocabulary).rule_set(rules)
    writer = RandomEvents(vocabulary)
    choose = vocabulary.random.sample
    texts = [writer.event(choose(written, min(len(written), 1 + number % 3))) for number in range(events)]
    return patterns, [text.encode() for text in texts]


def compare_seed(seed: int, rules: int = 100, events: int = 200) -> Agreement:
    """Compare on a random rule set; the differences name the seed.

    Half of the seeds have anchors, and half have rules that another matcher has too; all combinations occur.
    """
    patterns, texts = made(seed, rules, events)
    previous = compile_rules(patterns[::2]) if seed % 4 > 1 else None
    matcher = compile_rules(patterns, few_paths=(FEW_PATHS, 0)[seed % 2], previous=previous)
    agreement = compare(patterns, texts, matcher)
    return agreement._replace(differences=[f"seed {seed}: {one}" for one in agreement.differences])
