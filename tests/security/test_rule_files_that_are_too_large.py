"""A rule file that somebody sends is refused early when it costs too much, and what is wrong with it is said."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from eventbridge.errors import RuleFileError
from eventbridge.rule.bounds import MOST_MISTAKES, MOST_VALUES
from eventbridge.rule.load import load_rule_file

MIB = 1 << 20
#: Processor time that reading any of these files may take; 17 s was one of them.
SECONDS = 8.0
FILES = {
    "list": (b"- a\n" * (MIB // 4), "more than 50,000 keys and values"),
    "flow": (b"[" + b"a," * (MIB // 2 - 2) + b"]", "more than 50,000 keys and values"),
    "mappings": (b"".join(b"k%d: {}\n" % number for number in range(20_000)), "unknown field 'k0' of a rule file"),
    "deep": (b"[" * (MIB - 1), "nest deeper than 100"),
    "deep blocks": (b"- " * (MIB // 2), "nest deeper than 100"),
    "aliases": (b"a: &a [x]\nb:\n" + b"- *a\n" * 200_000, "the anchor &a is not supported"),
    "comments and no YAML": (b"#\n" * (MIB // 2 - 10) + b"a: b: c", "not YAML"),
    "long": (b"a" * (MIB + 1), "1,048,576 are the most"),
    "words and no YAML": (b"a " * (MIB // 2 - 10) + b": b: c", "not YAML"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_costs_too_much_is_refused_early(name: str) -> None:
    """One MiB of anything is answered within seconds, with what is wrong and where."""
    content, said = FILES[name]
    began = time.process_time()
    with pytest.raises(RuleFileError) as caught:
        load_rule_file(Path("sent.yaml"), {}, content)

    assert time.process_time() - began < SECONDS
    assert said in str(caught.value)
    assert len(caught.value.mistakes) <= MOST_MISTAKES


def test_a_file_of_the_installation_has_no_such_limit(tmp_path: Path) -> None:
    """An operator's own file may hold as many rules as it likes."""
    file = tmp_path / "many.yaml"
    target = "targets: {t: {type: file, path: /x/y}}"
    rules = [f"  r{number}: {{bus: b, pattern: {{}}, {target}}}" for number in range(MOST_VALUES // 10)]
    file.write_text("\n".join(["buses: {b: {source: {type: embedded}}}", "rules:", *rules]))

    assert len(load_rule_file(file, {}).rules) == len(rules)
    with pytest.raises(RuleFileError, match="more than 50,000"):
        load_rule_file(file, {}, file.read_bytes())
