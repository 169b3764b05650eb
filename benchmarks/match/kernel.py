"""Our matcher in a single thread, run by `Remote`."""

from __future__ import annotations

import gc
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.match.breakdown import Shares

    from eventbridge.matching import Matcher

BATCH = 20_000
"""Events that are matched in one call."""


class Pass(NamedTuple):
    """What a measurement saw: so many events, so many CPU-seconds for them, so many matches, bytes if they count."""

    events: int
    seconds: float
    matches: int
    bytes: int = 0

    @property
    def rate(self) -> float:
        """Events per CPU-second."""
        return self.events / self.seconds


class KernelSubject:
    """Compiled rule sets and blocks of events by name."""

    def __init__(self) -> None:
        from eventbridge.matching import compile_rules
        from eventbridge.matching.pattern import parse_pattern

        self._compile, self._parse = compile_rules, parse_pattern
        # Numba loads its code, or makes it once for all later runs, before anything is timed.
        compile_rules([parse_pattern({"type": ["a"]})]).match(pa.array(['{"type": "a"}']))
        self._matchers: dict[str, Matcher] = {}
        self._rules: dict[str, list[str]] = {}
        self._events: dict[str, pa.Array] = {}

    def compile(self, name: str, rules: Path) -> None:
        """Compile the rules of a file, one a line."""
        self._rules[name] = rules.read_text(encoding="utf-8").splitlines()
        self._matchers[name] = self._compile([self._parse(text) for text in self._rules[name]])
        # What lives long is not looked at by the garbage collector again, as in a worker of route.
        gc.freeze()

    def events(self, name: str, files: Sequence[Path]) -> None:
        """Take the events of Parquet files into memory under a name, in place of what had it."""
        columns = [pq.read_table(file, columns=["body"])["body"] for file in files]
        self._events[name] = pa.concat_arrays([chunk for column in columns for chunk in column.chunks])

    def measure(self, rules: str, events: str, seconds: float) -> Pass:
        """Match events, each once, until so many CPU-seconds are spent or there are no more."""
        matcher, texts = self._matchers[rules], self._events[events]
        count, matches, spent = 0, 0, 0.0
        begun = time.process_time()
        while count < len(texts) and spent < seconds:
            block = texts[count : count + BATCH]
            matches += len(matcher.match(block).rules)
            count += len(block)
            spent = time.process_time() - begun
        return Pass(count, spent, matches, pc.sum(pc.binary_length(texts[:count])).as_py())

    def shares(self, rules: str, events: str) -> Shares:
        """Return where the time of these events goes, of which no matcher knows any."""
        from benchmarks.match.breakdown import IMPOSSIBLE, shares

        name = f"{rules}, none met"
        if name not in self._matchers:
            impossible = [json.dumps(json.loads(text) | IMPOSSIBLE) for text in self._rules[rules]]
            self._matchers[name] = self._compile([self._parse(text) for text in impossible])
            self._rules[name] = impossible
            gc.freeze()
        return shares(self._matchers[rules], self._matchers[name], self._events[events])

    def counts(self, rules: str, events: str, number: int) -> list[int]:
        """Return how many of the first events each rule matches."""
        found = self._matchers[rules].match(self._events[events][:number])
        return [int(count) for count in np.bincount(found.rules, minlength=len(self._rules[rules]))]

    def differences(self, rules: str, events: str, number: int, max_rules: int) -> tuple[int, int, int]:
        """Ask the reference matcher too; return pairs of event and rule, how many match, how many results differ.

        It is asked about the first `number` events and the first `max_rules` rules.
        """
        from eventbridge.event.json_document import parse_document
        from eventbridge.matching.reference import flatten, matches_leaves

        texts = self._events[events][:number]
        found = self._matchers[rules].match(texts)
        patterns = [self._parse(text) for text in self._rules[rules][:max_rules]]
        matched = differing = 0
        for index, text in enumerate(texts.to_pylist()):
            leaves = flatten(parse_document(text))
            right = {rule for rule, pattern in enumerate(patterns) if matches_leaves(pattern, leaves)}
            of_event = found.rules[found.offsets[index] : found.offsets[index + 1]]
            ours = of_event[of_event < len(patterns)].tolist()
            matched += len(right)
            differing += len(right.symmetric_difference(ours)) + len(ours) - len(set(ours))
        return len(texts) * len(patterns), matched, differing


def write_rules(file: Path, rules: list[dict[str, object]]) -> Path:
    """Write rules, one a line."""
    file.write_text("".join(json.dumps(rule) + "\n" for rule in rules), encoding="utf-8")
    return file
