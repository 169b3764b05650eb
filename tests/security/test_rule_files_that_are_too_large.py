"""A rule file from a caller is refused early when it costs too much, and the error is named."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psutil
import pytest

from eventbridge.errors import RuleFileError
from eventbridge.rules.bounds import MAX_ERRORS, MAX_VALUES
from eventbridge.rules.load import load_rule_file

MIB = 1 << 20


def rules_with(expressions: int, rules: int) -> bytes:
    """Return a file of rules with regular expressions of few characters, which RE2 compiles to megabytes."""
    pattern = {"data": {f"a{number}": [{"regex": rf"\pL{{90}}{number} of RULE"}] for number in range(expressions)}}
    rule = f"{{bus: b, pattern: {json.dumps(pattern)}, targets: {{t: {{type: file, path: /x}}}}}}"
    named = "".join(f"  r{number}: {rule}\n".replace("RULE", str(number)) for number in range(rules))
    return f"buses: {{b: {{source: {{type: embedded}}}}}}\nrules:\n{named}".encode()


#: Processor time that reading any of these files may take; 17 s was one of them.
SECONDS = 8.0
FILES = {
    "list": (b"- a\n" * (MIB // 4), "more than 50,000 keys and values"),
    "flow": (b"[" + b"a," * (MIB // 2 - 2) + b"]", "more than 50,000 keys and values"),
    "mappings": (b"".join(b"k%d: {}\n" % number for number in range(20_000)), "unknown field 'k0' of a rule file"),
    "deep": (b"[" * (MIB - 1), "nested deeper than 100"),
    "deep blocks": (b"- " * (MIB // 2), "nested deeper than 100"),
    "aliases": (b"a: &a [x]\nb:\n" + b"- *a\n" * 200_000, "the anchor &a is not supported"),
    "comments and no YAML": (b"#\n" * (MIB // 2 - 10) + b"a: b: c", "invalid YAML"),
    "expressions of one rule": (rules_with(300, 1), "other expressions of this pattern are too large together"),
    "long": (b"a" * (MIB + 1), "the limit for a file that is sent is 1,048,576"),
    "words and no YAML": (b"a " * (MIB // 2 - 10) + b": b: c", "invalid YAML"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_costs_too_much_is_refused_early(name: str) -> None:
    """One MiB of anything gets a response within seconds, with what is wrong and where."""
    content, said = FILES[name]
    began = time.process_time()
    with pytest.raises(RuleFileError) as caught:
        load_rule_file(Path("sent.yaml"), {}, content)

    assert time.process_time() - began < SECONDS
    assert said in str(caught.value)
    assert len(caught.value.errors) <= MAX_ERRORS


def test_expressions_of_many_rules_are_not_all_compiled() -> None:
    """Each rule by itself is none too large; those of all rules have a bound, and what was compiled is not kept."""
    began, before = time.process_time(), psutil.Process().memory_info().rss
    with pytest.raises(RuleFileError, match="those of the rules before it are too large together"):
        load_rule_file(Path("sent.yaml"), {}, rules_with(1, 300))

    assert time.process_time() - began < SECONDS
    assert psutil.Process().memory_info().rss - before < 256 << 20  # 128 such programs take as much


def test_a_file_of_the_installation_has_no_such_limit(tmp_path: Path) -> None:
    """An operator's own file may hold as many rules as it likes."""
    file = tmp_path / "many.yaml"
    target = "targets: {t: {type: file, path: /x/y}}"
    rules = [f"  r{number}: {{bus: b, pattern: {{}}, {target}}}" for number in range(MAX_VALUES // 10)]
    file.write_text("\n".join(["buses: {b: {source: {type: embedded}}}", "rules:", *rules]))

    assert len(load_rule_file(file, {}).rules) == len(rules)
    with pytest.raises(RuleFileError, match="more than 50,000"):
        load_rule_file(file, {}, file.read_bytes())
