"""Counts the values of matched events at the paths of rules' expectations, from Parquet columns with DuckDB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from eventbridge.model import row_vectors
from eventbridge.policy.quality import FieldCounts
from eventbridge.rules import Rule, RuleSet
from eventbridge.rules.model import FieldExpectation
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.columns import codes_of, numbers_of
from eventbridge.store.field_sql import count_fields
from eventbridge.store.parquet import read_rows, read_table
from eventbridge.transform.jsonpath import parse_path

Fields = dict[tuple[str, str], tuple[FieldExpectation, FieldCounts]]


def count_expected_fields(runtime: Runtime, rules: RuleSet, routed: Iterable[Mapping[str, Any]]) -> Fields:
    """Return the field expectations of today's rules, with counts over events of `routed` manifests, by (rule, path).

    Has the matched events of one archive file in memory at a time. Raises StoreError for a lost or damaged file.
    """
    expecting = [rule for rule in rules.rules.values() if rule.expect is not None and rule.expect.fields]
    found: Fields = {
        (rule.name, path): (expected, FieldCounts()) for rule in expecting for path, expected in _fields(rule).items()
    }
    for manifest in routed:
        matched = {key.partition("/")[0] for key in manifest["fingerprints"]["matched"]}
        for rule in expecting:
            if rule.name in matched:
                _count(runtime, rule, manifest, found)
    return found


def _fields(rule: Rule) -> Mapping[str, FieldExpectation]:
    return rule.expect.fields if rule.expect is not None else {}


def _count(runtime: Runtime, rule: Rule, manifest: Mapping[str, Any], found: Fields) -> None:
    paths = {path: parse_path(path).steps for path in _fields(rule)}
    for file, rows in _matched_events(runtime, rule.name, manifest["files"]["delivery"]):
        events = read_rows(runtime.store, file, rows, ["body"])
        for path, counts in count_fields(events, paths).items():
            found[rule.name, path][1].add(counts)


def _matched_events(runtime: Runtime, rule: str, files: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the places of a rule's matched events, each once: archive file and row set."""
    rows_of: dict[str, set[int]] = {}
    for path in files:
        table = read_table(runtime.store, path, ["rule", "event_file", "event_row"], coded=["rule", "event_file"])
        rule_of, rules = codes_of(table["rule"])
        if rule not in rules:
            continue
        chosen = rule_of == rules.index(rule)
        file_of, names = codes_of(table["event_file"])
        rows = numbers_of(table["event_row"])
        for number in np.unique(file_of[chosen]).tolist():
            rows_of.setdefault(names[number], set()).update(rows[chosen & (file_of == number)].tolist())
    for file, places in sorted(rows_of.items()):
        yield file, row_vectors.encode(np.array(sorted(places), dtype=np.int64))
