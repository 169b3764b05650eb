"""Regular expressions are bounded in what they compile to: one, those of a pattern, and those of all rule files."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from eventbridge.errors import RuleFileError
from eventbridge.matching.pattern import find_errors, parse_pattern, write_pattern
from eventbridge.rules.load import load_rules

#: Processor time that reading a folder may take; it was a minute, and is 2 s to 5 s.
SECONDS = 15.0
#: What people write, by what it is for.
EVERYDAY = {
    "order number": r"[A-Z]{2}-\d{4}-\d{1,10}",
    "e-mail": r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,255}\.[A-Za-z]{2,24}",
    "UUID": r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
    "IBAN": r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}",
    "IPv4": r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)",
    "date and time": r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})",
    "URL": r"https?://[^\s/?#]{1,255}(?:/[^\s?#]{0,500})?(?:\?[^\s#]{0,500})?",
    "any text": r"(?s).{1,1000}",
    "name": r"\p{L}+(?:[ '-]\p{L}+)*",
    "name of a bounded length": r"\p{L}[\p{L} '-]{1,50}",
    "word of letters": r"\p{L}{1,64}",
    "log line": r".*(?i:error|fatal|timeout|refused|unreachable).*",
    "semantic version": r"v?\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?",
    "a thousand words": "|".join(f"word{number}" for number in range(1_000)),
    "base64": r"(?:[A-Za-z0-9+/]{4}){1,200}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?",
}


def folder_of(tmp_path: Path, expressions: list[str], files: int = 1) -> Path:
    """Return a folder with a rule for each expression, in so many files."""
    target = {"t": {"type": "file", "path": "a.jsonl"}}
    for file in range(files):
        rules = {
            f"r{number}": {"bus": "b", "pattern": {"type": [{"regex": expressions[number]}]}, "targets": target}
            for number in range(file, len(expressions), files)
        }
        buses = {"buses": {"b": {"source": {"type": "embedded"}}}} if file == 0 else {}
        (tmp_path / f"{file}.yaml").write_text(json.dumps({**buses, "rules": rules}))
    return tmp_path


@pytest.mark.parametrize("name", EVERYDAY)
def test_an_everyday_expression_is_taken(name: str) -> None:
    """None of these is near a bound: a pattern may have four of each."""
    texts = [{"regex": f"{EVERYDAY[name]}{number}"} for number in range(4)]

    assert find_errors({"data": {"a": texts}}) == []


def test_all_everyday_expressions_stand_in_one_folder(tmp_path: Path) -> None:
    """A hundred rules of each kind, but for those of any letters, are taken together."""
    kinds = [text for text in EVERYDAY.values() if r"\p{L}" not in text]
    expressions = [f"{text}{number}" for text in kinds for number in range(100)]

    assert len(load_rules(folder_of(tmp_path, expressions)).rules) == len(expressions)


@pytest.mark.parametrize("text", [r"\p{L}{400}", r"[\p{L}\p{N}]{900}", r"(\p{L}|\p{N}|\w){0,900}x"])
def test_an_expression_that_is_too_large_is_refused(text: str) -> None:
    """The error says where it stands, what it is and what to write."""
    [error] = find_errors({"data": {"a": [{"regex": text}]}})

    assert error.path == "$.data.a[0].regex"
    assert f"the regular expression {json.dumps(text)} is too large" in error.message
    assert "Write smaller counts" in error.remedy


@pytest.mark.parametrize("text", [r"\p{L}{400}", r"\p{L}{300}"])
def test_a_rule_that_an_older_version_took_is_matched(text: str) -> None:
    """Events that were taken by its rule set are routed by it, although no rule file may hold it any more."""
    assert write_pattern(parse_pattern({"data": {"a": [{"regex": text}]}})) == {"data": {"a": [{"regex": text}]}}


@pytest.mark.parametrize("text", ["a{1001}", "(a{100}){100}"])
def test_a_count_that_is_too_large_is_refused(text: str) -> None:
    """RE2 repeats up to 1,000 times, and multiplies nested counts."""
    [error] = find_errors({"data": {"a": [{"regex": text}]}})

    assert error.message.startswith("not a valid RE2 expression: invalid repetition size")
    assert "at most 1,000" in error.remedy


@pytest.mark.parametrize("expression", [r"\p{L}{400}x", r"\p{L}{100}x", r"\p{L}{20}x"])
@pytest.mark.parametrize("files", [1, 300])
def test_a_folder_is_read_in_bounded_time(tmp_path: Path, expression: str, files: int) -> None:
    """600 rules whose expressions compile to megabytes: it took a minute, and is refused within seconds."""
    folder = folder_of(tmp_path, [f"{expression}{number}" for number in range(600)], files)
    for cache in (None, tmp_path / "cache"):
        began = time.process_time()
        with pytest.raises(RuleFileError) as caught:
            load_rules(folder, cache=cache)

        assert time.process_time() - began < SECONDS
        last = caught.value.errors[-1]
        assert last.file.startswith(str(folder))
        assert last.path.endswith(".pattern.type[0].regex")
        assert "too large" in last.message
        assert json.dumps(expression)[1:-1] in last.message
        assert "Write smaller counts" in last.remedy


def test_an_expression_that_many_rules_have_counts_once(tmp_path: Path) -> None:
    """600 rules that want a name of letters are no more work than one."""
    folder = folder_of(tmp_path, [r"\p{L}{1,64}"] * 600, 3)

    assert len(load_rules(folder).rules) == 600
    assert len(load_rules(folder, cache=tmp_path / "cache").rules) == 600
    assert len(load_rules(folder, cache=tmp_path / "cache").rules) == 600


def test_files_that_are_known_again_are_added_up(tmp_path: Path) -> None:
    """Each file was read before and is small enough by itself; together they are too large, as without the cache."""
    target, cache = {"t": {"type": "file", "path": "a.jsonl"}}, tmp_path / "cache"
    buses = {"buses": {"b": {"source": {"type": "embedded"}}}}
    folder = tmp_path / "rules"
    folder.mkdir()
    for file in range(3):
        rules = {
            f"r{file}-{number}": {
                "bus": "b",
                "pattern": {"type": [{"regex": rf"\p{{L}}{{80}}{file}-{number}"}]},
                "targets": target,
            }
            for number in range(15)
        }
        (folder / f"{file}.yaml").write_text(json.dumps({"rules": rules} if file else {**buses, "rules": rules}))
        if file < 2:
            assert len(load_rules(folder, cache=cache).rules) == 15 * (file + 1)

    with pytest.raises(RuleFileError, match="too large together"):
        load_rules(folder, cache=cache)
