"""Our matcher, alone in one thread: what `Remote` runs to measure it."""

from __future__ import annotations

import gc
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from eventbridge.match import Matcher
    from eventbridge.pattern import Pattern

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
        from eventbridge.match import compile_rules
        from eventbridge.pattern import parse_pattern

        self._compile, self._parse = compile_rules, parse_pattern
        # Numba loads its code, or makes it once for all later runs, before anything is timed.
        compile_rules([parse_pattern({"type": ["a"]})]).match(pa.array(['{"type": "a"}']))
        self.matchers: dict[str, Matcher] = {}
        self._rules: dict[str, list[str]] = {}
        self._patterns: dict[str, list[Pattern]] = {}
        self._events: dict[str, pa.Array] = {}

    def compile(self, name: str, rules: Path) -> tuple[float, float]:
        """Compile the rules of a file, one a line; return the CPU-seconds of parsing and of compiling them."""
        texts = rules.read_text(encoding="utf-8").splitlines()
        begun = time.process_time()
        patterns = [self._parse(text) for text in texts]
        parsed = time.process_time()
        self.matchers[name] = self._compile(patterns)
        self._rules[name], self._patterns[name] = texts, patterns
        compiled = time.process_time()
        # What lives long is not looked at by the garbage collector again, as in a worker of route.
        gc.freeze()
        return parsed - begun, compiled - parsed

    def change(self, name: str, rules: Path) -> float:
        """Put the rules of a file in place of the first ones of a set; return the CPU-seconds it takes."""
        texts = rules.read_text(encoding="utf-8").splitlines()
        begun = time.process_time()
        patterns = [*(self._parse(text) for text in texts), *self._patterns[name][len(texts) :]]
        self._compile(patterns, previous=self.matchers[name])
        return time.process_time() - begun

    def events(self, name: str, file: Path) -> None:
        """Take the events of a Parquet file into memory under a name, in place of what had it."""
        self._events[name] = pq.read_table(file, columns=["body"])["body"].combine_chunks()

    def forget(self, name: str) -> None:
        """Drop a compiled rule set."""
        del self.matchers[name], self._rules[name], self._patterns[name]

    def measure(self, rules: str, events: str, seconds: float) -> Pass:
        """Match all events, again and again until so many CPU-seconds are spent."""
        matcher, texts = self.matchers[rules], self._events[events]
        count, matches, spent = 0, 0, 0.0
        begun = time.process_time()
        while spent < seconds:
            for first in range(0, len(texts), BATCH):
                found = matcher.match(texts[first : first + BATCH])
                matches += len(found.rules)
            count += len(texts)
            spent = time.process_time() - begun
        return Pass(count, spent, matches, count // len(texts) * pc.sum(pc.binary_length(texts)).as_py())

    def counts(self, rules: str, events: str, number: int) -> list[int]:
        """Return how many of the first events each rule matches."""
        found = self.matchers[rules].match(self._events[events][:number])
        return [int(count) for count in np.bincount(found.rules, minlength=len(self._rules[rules]))]

    def differences(self, rules: str, events: str, number: int) -> tuple[int, int, int]:
        """Ask the reference matcher too; return pairs of event and rule, how many match, how many answers differ."""
        from eventbridge.document import parse_document
        from eventbridge.match.reference import flatten, matches_leaves

        texts = self._events[events][:number]
        found = self.matchers[rules].match(texts)
        patterns = [self._parse(text) for text in self._rules[rules]]
        matched = differing = 0
        for index, text in enumerate(texts.to_pylist()):
            leaves = flatten(parse_document(text))
            right = {rule for rule, pattern in enumerate(patterns) if matches_leaves(pattern, leaves)}
            ours = found.rules[found.offsets[index] : found.offsets[index + 1]].tolist()
            matched += len(right)
            differing += len(right.symmetric_difference(ours)) + len(ours) - len(set(ours))
        return len(texts) * len(patterns), matched, differing


class MemorySubject:
    """One worker over its life: what it holds in memory, and what its first events cost."""

    def __init__(self) -> None:
        import numba  # noqa: F401 - memory is counted from the interpreter with both libraries on

        self._before = _resident()
        self._kernel = KernelSubject()

    def compile(self, rules: Path) -> tuple[float, float]:
        """Compile the rules of a file; return the CPU-seconds of parsing and of compiling them."""
        return self._kernel.compile("rules", rules)

    def match(self, file: Path) -> Pass:
        """Match the events of a Parquet file once, batch by batch as they are read."""
        seconds, count, matches = 0.0, 0, 0
        matcher = self._kernel.matchers["rules"]
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(BATCH, columns=["body"]):
                begun = time.process_time()
                matches += len(matcher.match(batch.column(0)).rules)
                seconds += time.process_time() - begun
                count += len(batch)
        return Pass(count, seconds, matches)

    def megabytes(self) -> float:
        """Return the resident memory that came since both libraries were loaded."""
        return (_resident() - self._before) / 2**20


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


def write_rules(file: Path, rules: list[dict[str, object]]) -> Path:
    """Write rules, one a line."""
    file.write_text("".join(json.dumps(rule) + "\n" for rule in rules), encoding="utf-8")
    return file
