"""The kernel agrees with the reference matcher on random rules and events, and with JSON parsers on damaged text.

`make test-deep` runs the same code for minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from generative.event_strategies import events, events_near
from generative.kernel_agreement import compare, compare_seed, made
from generative.pattern_strategies import patterns
from hypothesis import given
from hypothesis import strategies as st

from eventbridge.event.json_document import write_document
from eventbridge.matching.pattern import parse_pattern
from eventbridge.matching.reference import matches

TESTS = Path(__file__).parents[1]


def deep(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a small part of the deep comparison in a separate process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "include")])}
    command = [sys.executable, "-X", "faulthandler", "-m", "generative.deep", *arguments]
    return subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("seed", range(24))
def test_kernel_agrees_with_the_reference_on_random_rule_sets(seed: int) -> None:
    """Both matchers have the same results for 1 to 200 random rules and events made for them."""
    rules = (1, 2, 10, 64, 65, 100, 130, 200)[seed % 8]

    assert compare_seed(seed, rules, events=150).differences == []


@pytest.mark.parametrize("seed", range(100, 103))
def test_kernel_agrees_where_rows_are_long(seed: int) -> None:
    """Both matchers agree on 1,000 rules and more, whose rows have many words, of which eight are read together."""
    assert compare_seed(seed, 1_500, events=20).differences == []


def test_random_events_hit_the_rules_they_are_made_for() -> None:
    """About half of the events match a rule that they were made for, so that both results are tested."""
    rules, texts = made(seed=1, rules=1, events=2_000)
    several = [made(seed, rules=1, events=40) for seed in range(2, 42)]
    responses = [matches(pattern[0], event) for pattern, found in several for event in found if b"[" * 99 not in event]

    assert len(rules) == 1
    assert len(texts) == 2_000
    assert 0.35 < sum(responses) / len(responses) < 0.75


def events_for(several: list[dict[str, Any]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Return events of any shape and events near the patterns."""
    near = [events_near(pattern) for pattern in several]
    return st.lists(st.one_of(events, *near), min_size=1, max_size=6)


@given(st.lists(patterns(), min_size=1, max_size=12).flatmap(lambda all: st.tuples(st.just(all), events_for(all))))
def test_kernel_agrees_with_the_reference(pair: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
    """Both matchers agree on what Hypothesis draws, which it shrinks if they differ."""
    several, documents = pair
    texts = [write_document(document).encode() for document in documents]

    assert compare([parse_pattern(pattern) for pattern in several], texts).differences == []


def test_damaged_documents_are_refused_as_the_standard_refuses_them() -> None:
    """The scanner rejects the same damaged texts as the standard library, and reads nothing after the padding."""
    run = deep("--documents", "10000", "--seed", "1")

    assert (run.returncode, run.stderr) == (0, ""), run.stdout
    assert " 0 differences" in run.stdout


@pytest.mark.parametrize("guard", ["end", "beginning"])
def test_tables_are_read_only_where_they_are(guard: str) -> None:
    """With tables between forbidden pages the results are the same, and no process crashes."""
    run = deep("--pairs", "60000", "--documents", "1000", "--seed", "77", "--guard", guard)

    assert (run.returncode, run.stderr) == (0, ""), run.stdout
    assert run.stdout.count(" 0 differences") == 2
