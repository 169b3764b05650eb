"""The Python interface of the compiled matcher: it compiles patterns and matches Arrow arrays of events."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.event.json_document import as_document, parse_document
from eventbridge.matching.kernel import tables as t
from eventbridge.matching.kernel.branches import Branch, branches_of
from eventbridge.matching.kernel.classes import clear
from eventbridge.matching.kernel.conditions import LeafListEffect
from eventbridge.matching.kernel.event_tables import BLOCK_BYTES, BLOCK_EVENTS, KEPT, BlockBuffers, EventTables
from eventbridge.matching.kernel.expressions import ExpressionSets
from eventbridge.matching.kernel.judge import ALL_RULES, judge
from eventbridge.matching.kernel.program import FEW_PATHS, MAXIMUM_ROWS, compile_program
from eventbridge.matching.pattern.nodes import Field, Pattern
from eventbridge.matching.reference import UnmetCondition, explain, flatten, matches_leaves
from eventbridge.matching.scan.leaves import MALFORMED, STRING, scan
from eventbridge.matching.scan.memory import address_of
from eventbridge.matching.scan.texts import Texts, texts_of
from eventbridge.matching.scan.tree import path_tree, tree_tables
from eventbridge.processes import check_cancelled


class Matches(NamedTuple):
    """The matches of a block of events.

    The rules of event i are `rules[offsets[i]:offsets[i + 1]]`: positions in the compiled sequence, each once, in no
    particular order. `malformed` are the numbers of the events that are not one strict JSON object; they match no rule.
    `handed_back` is how many pairs of event and rule, and events for all rules, the reference matcher decided.
    """

    offsets: npt.NDArray[np.int64]
    rules: npt.NDArray[np.int32]
    malformed: npt.NDArray[np.int64]
    handed_back: int


class Matcher:
    """A compiled rule set, returned by `compile_rules`; its calls run one at a time, because they share its tables."""

    def __init__(
        self,
        patterns: Sequence[Pattern],
        *,
        class_rows: int = MAXIMUM_ROWS,
        few_paths: int = FEW_PATHS,
        previous: Matcher | None = None,
    ) -> None:
        self._patterns = tuple(patterns)
        self._class_rows, self._few_paths = class_rows, few_paths
        known: dict[Pattern, list[Branch]] = previous._branches if previous else {}
        effects = dict(previous._effects) if previous else {}
        self._branches: dict[Pattern, list[Branch]] = {
            pattern: known.get(pattern) or branches_of(pattern, effects) for pattern in self._patterns
        }
        used = {effect for listed in self._branches.values() for branch in listed for effect in branch.effects}
        self._effects: dict[Field, LeafListEffect] = {
            field: effect for field, effect in effects.items() if effect in used
        }
        program = compile_program([self._branches[pattern] for pattern in self._patterns], class_rows, few_paths)
        self._tables = program.tables
        self._tree = path_tree(program.paths)
        self._tree_tables = tree_tables(self._tree)
        self._regexes = program.regexes
        # An event matches no more rules than there are bits of branches, and `judge` needs room for one more word.
        self._rooms = BlockBuffers(len(self._patterns), 64 * self._tables.number(t.WORDS) + 64)
        self._begin()
        self._lock = threading.Lock()
        _matchers.add(self)

    def _begin(self) -> None:
        """Allocate the state that changes while events are matched, except the table of classes."""
        self._expressions = {path: ExpressionSets(listed) for path, listed in self._regexes.items()}
        self._event = EventTables(self._tables, len(self._patterns))
        self._was_interrupted = False

    def _restore(self) -> None:
        """Reset the state that a call of another thread had changed when this process was forked."""
        clear(self._tables.address)
        self._begin()

    def __len__(self) -> int:
        return len(self._patterns)

    def __reduce__(self) -> tuple[Any, ...]:
        # The tables contain addresses of this process, so another process compiles the rules again.
        return partial(compile_rules, class_rows=self._class_rows, few_paths=self._few_paths), (self._patterns,)

    @property
    def clears(self) -> int:
        """The number of times that the table of classes was full and was cleared."""
        return int(self._tables.array(t.COUNTERS)[t.COUNTER_CLEARS])

    @property
    def classes(self) -> int:
        """The number of classes of leaves in the table now."""
        return int(self._tables.array(t.COUNTERS)[t.COUNTER_CLASSES])

    def match(self, events: pa.Array | pa.ChunkedArray) -> Matches:
        """Return which rules each event matches, given JSON text in Arrow strings or binaries; null is malformed."""
        return self.match_texts(texts_of(events))

    def match_texts(self, texts: Texts) -> Matches:
        """Return what `match` returns, for callers that already have the events as `Texts`."""
        with self._lock:
            if self._was_interrupted:
                self._restore()
            return self._match(texts)

    def explain(self, event: str | bytes | Mapping[Any, Any], rule: int) -> list[UnmetCondition]:
        """Return why a rule does not match an event, one finding per failed condition; none if it matches.

        Raises EventError if the event is not one strict JSON object, and IndexError if there is no such rule.
        """
        if not 0 <= rule < len(self._patterns):
            raise IndexError(f"there is no rule {rule}: the matcher has {len(self._patterns)}, numbered from 0")
        document = parse_document(event) if isinstance(event, (str, bytes)) else as_document(event)
        return explain(self._patterns[rule], document)

    def _match(self, texts: Texts) -> Matches:
        count = len(texts.start)
        offsets = np.zeros(count + 1, np.int64)
        status = np.empty(count, np.uint8)
        found: list[npt.NDArray[np.int32]] = []
        handed: list[npt.NDArray[np.int64]] = []
        last = 0
        while last < count:
            check_cancelled()
            first = last
            # The first event that ends beyond BLOCK_BYTES begins the next block.
            fitting = int(
                np.searchsorted(texts.end[first : first + BLOCK_EVENTS], texts.start[first] + BLOCK_BYTES, "right")
            )
            last = first + max(1, fitting)
            block = self._rooms.text.take(texts, first, last)
            stops, rules, back = self._match_block(block, status[first:last])
            offsets[first + 1 : last + 1] = stops[1:] + offsets[first]
            found.append(rules)
            if len(back):
                handed.append(back + np.array([first, 0]))
        rules = np.concatenate(found) if found else np.zeros(0, np.int32)
        malformed = np.flatnonzero(status == MALFORMED).astype(np.int64)
        self._rooms.give_back()
        self._event.give_back(KEPT * BLOCK_BYTES)
        if not handed:
            return Matches(offsets, rules, malformed, 0)
        pairs = np.concatenate(handed)
        return self._add_reference_matches(texts, offsets, rules, malformed, pairs)

    def _match_block(
        self, block: Texts, status: npt.NDArray[np.uint8]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        rooms, count = self._rooms, len(block.start)
        first_leaf = np.zeros(count + 1, np.int64)
        text = address_of(block.buffer)
        done = 0
        while True:
            done = scan(text, block.start, block.end, self._tree_tables, rooms.leaves, first_leaf, status, done)
            if done == count:
                break
            rooms.grow_leaves()
        leaf_count = int(first_leaf[count])
        longest = int((block.end - block.start).max(initial=0))
        self._event.make_room(rooms.leaves, longest)
        expressions = self._look_up_expressions(block, leaf_count) if self._expressions else None
        offsets = np.zeros(count + 1, np.int64)
        handed_count = np.zeros(1, np.int64)
        done = 0
        while True:
            done = judge(
                self._tables.address,
                self._event.address,
                text,
                self._event.plain,
                self._event.folded,
                address_of(self._tree.path),
                rooms.leaves,
                first_leaf,
                status,
                address_of(expressions[0]) if expressions else 0,
                address_of(expressions[1]) if expressions else 0,
                address_of(expressions[2]) if expressions else 0,
                done,
                offsets,
                rooms.rules,
                rooms.handed,
                handed_count,
            )
            if done == count:
                break
            rooms.grow(int(offsets[done]), int(handed_count[0]))
        return offsets, rooms.rules[: offsets[count]].copy(), rooms.handed[: handed_count[0]].copy()

    def _look_up_expressions(self, block: Texts, leaf_count: int) -> tuple[npt.NDArray[np.int32], ...]:
        """Return per leaf where its atoms of regular expressions begin and how many it has, and then these atoms."""
        leaves = self._rooms.leaves
        firsts, counts = np.zeros(leaf_count, np.int32), np.zeros(leaf_count, np.int32)
        atoms: list[int] = []
        paths = np.where(leaves.node[:leaf_count] >= 0, self._tree.path[leaves.node[:leaf_count]], -1)
        for path, sets in self._expressions.items():
            for leaf in np.flatnonzero((paths == path) & (leaves.kind[:leaf_count] >= STRING)).tolist():
                begin = int(leaves.position[leaf])
                content = block.buffer[begin : begin + int(leaves.length[leaf])].tobytes()
                met = sets.met_by(content, escaped=leaves.kind[leaf] != STRING)
                if met:
                    firsts[leaf], counts[leaf] = len(atoms), len(met)
                    atoms += met
        return firsts, counts, np.array([*atoms, 0], np.int32)

    def _add_reference_matches(
        self,
        texts: Texts,
        offsets: npt.NDArray[np.int64],
        rules: npt.NDArray[np.int32],
        malformed: npt.NDArray[np.int64],
        pairs: npt.NDArray[np.int64],
    ) -> Matches:
        """Return the matches with the reference matcher's results for the pairs that were handed back."""
        more_events, more_rules = [], []
        pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
        events_asked, begins = np.unique(pairs[:, 0], return_index=True)
        for event, asked_rules in zip(events_asked.tolist(), np.split(pairs[:, 1], begins[1:]), strict=True):
            leaves = flatten(parse_document(texts.buffer[texts.start[event] : texts.end[event]].tobytes()))
            asked = asked_rules.tolist()
            for rule in range(len(self._patterns)) if ALL_RULES in asked else asked:
                if matches_leaves(self._patterns[rule], leaves):
                    more_events.append(event)
                    more_rules.append(rule)
        events = np.concatenate([np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), more_events])
        merged = np.concatenate([rules, np.array(more_rules, np.int32)])
        order = np.argsort(events, kind="stable")
        ends = np.searchsorted(events[order], np.arange(len(offsets))).astype(np.int64)
        return Matches(ends, merged[order], malformed, len(pairs))


_matchers: Final[weakref.WeakSet[Matcher]] = weakref.WeakSet()


def _after_fork() -> None:
    """Unlock, in a forked process, the matchers that other threads were using: those threads do not exist here.

    The next call of such a matcher resets the state that the interrupted call had changed.
    """
    for matcher in _matchers:
        if matcher._lock.locked():
            matcher._lock = threading.Lock()
            matcher._was_interrupted = True


os.register_at_fork(after_in_child=_after_fork)


def compile_rules(
    patterns: Sequence[Pattern],
    *,
    class_rows: int = MAXIMUM_ROWS,
    few_paths: int = FEW_PATHS,
    previous: Matcher | None = None,
) -> Matcher:
    """Return a matcher for the patterns, with the same results as `eventbridge.matching.reference`.

    `class_rows` limits the table of classes, which is cleared when it is full. With more than `few_paths` paths,
    branches have anchors. Both change the cost and never a result. `previous` is the matcher of the rule set before a
    change: patterns that it has too are compiled faster, but no tables are shared. Raises TypeError for a pattern that
    was not parsed.
    """
    if isinstance(patterns, Pattern):
        raise TypeError("a sequence of parsed patterns is expected, not one pattern: put it into a list")
    listed = list(patterns)
    for number, pattern in enumerate(listed):
        if not isinstance(pattern, Pattern):
            kind = type(pattern).__name__
            raise TypeError(f"a sequence of parsed patterns is expected, but item {number} is a {kind}: parse it first")
    return Matcher(listed, class_rows=class_rows, few_paths=few_paths, previous=previous)
