"""The AND over the rows of all columns, and the rules of the branches that survive it."""

from __future__ import annotations

from typing import Any

import numpy as np

from eventbridge.match.kernel import tables as t
from eventbridge.match.kernel.conflicts import CONFLICT, HAND_BACK, HOLDS, without_conflict
from eventbridge.match.kernel.event_tables import (
    CHAIN_NEXT,
    CHAIN_ROW,
    COLUMN_ADDRESS,
    PATH_CHAIN,
    PATH_CURRENT,
    RULE_BACK,
    RULE_NO,
    RULE_YES,
    TOUCHED_COUNT,
    TOUCHED_RULES,
)
from eventbridge.scan.compiled import compiled, inlined
from eventbridge.scan.memory import (
    byte_at,
    int32_at,
    int64_at,
    lowest_bit,
    put_int32,
    put_word,
    word_at,
)

_ONE, _ZERO = np.uint64(1), np.uint64(0)


@inlined
def _gather_columns(tables: int, event_tables: int) -> None:
    """Write where each column's row begins; with the path's chain it is all that the AND reads."""
    paths, offsets = int64_at(tables, t.COLUMN_PATH), int64_at(tables, t.COLUMN_OFFSET)
    current, addresses = int64_at(event_tables, PATH_CURRENT), int64_at(event_tables, COLUMN_ADDRESS)
    rows, stride = int64_at(tables, t.ROWS), int64_at(tables, t.STRIDE)
    for column in range(int64_at(tables, t.COLUMNS)):
        row = int32_at(current, int32_at(paths, column)) + int32_at(offsets, column)
        put_word(addresses, column, np.uint64(rows + 8 * row * stride))


@compiled
def collect_single(tables: int, event_tables: int, stamp: int, rules: int, room: int, count: int, nested: bool) -> Any:
    """Write the rules of an event with one class per path; return their number, -1 if there is no room.

    Rules with more to be said are among the touched ones.
    """
    _gather_columns(tables, event_tables)
    summary_words = int64_at(tables, t.SUMMARY_WORDS)
    columns = int64_at(tables, t.COLUMNS)
    everyone = int64_at(tables, t.ROWS)  # row 0: all branches
    addresses = int64_at(event_tables, COLUMN_ADDRESS)
    for summary_word in range(summary_words):
        busy = word_at(everyone, summary_word)
        for column in range(columns):
            busy &= word_at(int64_at(addresses, column), summary_word)
            if busy == _ZERO:
                break
        while busy != _ZERO:
            word = summary_word * 64 + lowest_bit(busy)
            busy &= busy - _ONE
            bits = word_at(everyone, summary_words + word)
            for column in range(columns):
                bits &= word_at(int64_at(addresses, column), summary_words + word)
                if bits == _ZERO:
                    break
            if bits != _ZERO:
                count = _survivors(tables, event_tables, stamp, word, bits, rules, room, count, nested)
                if count < 0:
                    return -1
    return count


@compiled
def collect_chained(tables: int, event_tables: int, stamp: int, rules: int, room: int, count: int, nested: bool) -> Any:
    """Do the same for an event with a path of several classes: its row is the OR of theirs."""
    _gather_columns(tables, event_tables)
    summary_words = int64_at(tables, t.SUMMARY_WORDS)
    columns = int64_at(tables, t.COLUMNS)
    everyone = int64_at(tables, t.ROWS)
    addresses, column_paths = int64_at(event_tables, COLUMN_ADDRESS), int64_at(tables, t.COLUMN_PATH)
    column_offsets = int64_at(tables, t.COLUMN_OFFSET)
    chains = int64_at(event_tables, PATH_CHAIN)
    for summary_word in range(summary_words):
        busy = word_at(everyone, summary_word)
        for column in range(columns):
            here = word_at(int64_at(addresses, column), summary_word)
            link = int32_at(chains, int32_at(column_paths, column))
            if link >= 0:
                here |= _or_chain(tables, event_tables, link, int32_at(column_offsets, column), summary_word)
            busy &= here
            if busy == _ZERO:
                break
        while busy != _ZERO:
            word = summary_word * 64 + lowest_bit(busy)
            busy &= busy - _ONE
            bits = word_at(everyone, summary_words + word)
            for column in range(columns):
                here = word_at(int64_at(addresses, column), summary_words + word)
                link = int32_at(chains, int32_at(column_paths, column))
                if link >= 0:
                    offset = int32_at(column_offsets, column)
                    here |= _or_chain(tables, event_tables, link, offset, summary_words + word)
                bits &= here
                if bits == _ZERO:
                    break
            if bits != _ZERO:
                count = _survivors(tables, event_tables, stamp, word, bits, rules, room, count, nested)
                if count < 0:
                    return -1
    return count


@inlined
def _or_chain(tables: int, event_tables: int, link: int, offset: int, word: int) -> Any:
    bits = _ZERO
    chain_rows, nexts = int64_at(event_tables, CHAIN_ROW), int64_at(event_tables, CHAIN_NEXT)
    rows, stride = int64_at(tables, t.ROWS), int64_at(tables, t.STRIDE)
    while link >= 0:
        bits |= word_at(rows, (int32_at(chain_rows, link) + offset) * stride + word)
        link = int32_at(nexts, link)
    return bits


@inlined
def _survivors(
    tables: int, event_tables: int, stamp: int, word: int, bits: Any, rules: int, room: int, count: int, nested: bool
) -> Any:
    """Write the rules of the branches whose bits are left in a word; those with more to be said are only touched."""
    branch_rules, flags = int64_at(tables, t.BRANCH_RULE), int64_at(tables, t.BRANCH_FLAGS)
    if count + 64 > room:
        return -1
    while bits != _ZERO:
        branch = word * 64 + lowest_bit(bits)
        bits &= bits - _ONE
        flag = byte_at(flags, branch)
        if flag == t.BRANCH_SIMPLE or (flag == t.BRANCH_SIMPLE | t.BRANCH_MAY_CONFLICT and not nested):
            put_int32(rules, count, int32_at(branch_rules, branch))
            count += 1
        else:
            count = _look_closer(tables, event_tables, stamp, branch, flag, rules, count, nested)
    return count


@compiled
def _look_closer(
    tables: int, event_tables: int, stamp: int, branch: int, flag: int, rules: int, count: int, nested: bool
) -> Any:
    rule = int32_at(int64_at(tables, t.BRANCH_RULE), branch)
    verdict = HOLDS
    if nested and flag & t.BRANCH_MAY_CONFLICT:
        verdict = without_conflict(tables, event_tables, branch, stamp)
        if verdict == CONFLICT:
            return count
    if flag & t.BRANCH_SIMPLE and verdict == HOLDS:
        put_int32(rules, count, rule)
        return count + 1
    yes, no = int64_at(event_tables, RULE_YES), int64_at(event_tables, RULE_NO)
    unsure = int64_at(event_tables, RULE_BACK)
    if int64_at(yes, rule) != stamp and int64_at(no, rule) != stamp and int64_at(unsure, rule) != stamp:
        touched = int64_at(event_tables, TOUCHED_COUNT)
        put_int32(int64_at(event_tables, TOUCHED_RULES), touched, rule)
        put_word(event_tables, TOUCHED_COUNT, np.uint64(touched + 1))
    if verdict == HAND_BACK or flag & t.BRANCH_UNCERTAIN:
        put_word(unsure, rule, np.uint64(stamp))
    elif flag & t.BRANCH_NEGATIVE:
        put_word(no, rule, np.uint64(stamp))
    else:
        put_word(yes, rule, np.uint64(stamp))
    return count


@compiled
def decide(event_tables: int, event: int, stamp: int, rules: int, count: int, handed: int, back: int) -> Any:
    """Write the touched rules that match, and hand back those that are not certain; return both counts."""
    for index in range(int64_at(event_tables, TOUCHED_COUNT)):
        rule = int32_at(int64_at(event_tables, TOUCHED_RULES), index)
        if int64_at(int64_at(event_tables, RULE_BACK), rule) == stamp:
            put_word(handed, 2 * back, np.uint64(event))
            put_word(handed, 2 * back + 1, np.uint64(rule))
            back += 1
        elif int64_at(int64_at(event_tables, RULE_NO), rule) != stamp:
            put_int32(rules, count, rule)
            count += 1
    return count, back
