"""The predicates of known differences apply where they say and nowhere else; no Java is needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from oracle import ruler
from oracle.contradictions import parts
from oracle.differences import DIFFERENCES
from oracle.draw_pairs import Drawing
from oracle.matchers import MATCHERS, reference
from oracle.pair import Pair
from oracle.refusals import REFUSALS
from oracle.shrink import shrink

from eventbridge.event.json_document import write_document
from eventbridge.matching.pattern import parse_pattern, write_pattern
from eventbridge.matching.reference import matches

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "patterns.md").read_text(encoding="utf-8")

PAIRS = [
    ("exists: false among other keys", '{"a":{"m":[{"exists":false}],"z":[1]}}', '{"a":[{"z":1},{"m":1}]}', True),
    ("exists: false among other keys", '{"a":{"m":[{"exists":false}],"b":[1]}}', '{"a":[{"b":1},{"m":1}]}', False),
    ("exists: false among other keys", '{"a":{"m":[{"exists":false}],"z":[1]}}', '{"a":[{"z":2},{"m":1}]}', False),
    ("exists: false among other keys", '{"m":[{"exists":false}],"z":[1]}', '{"m":1,"z":1}', False),
    ("numbers of more than 15 digits", '{"a":[9007199254740993]}', '{"a":9007199254740993.0}', True),
    ("numbers of more than 15 digits", '{"a":[9007199254740993]}', '{"a":9007199254740993}', False),
    ("numbers of more than 15 digits", '{"a":[{"numeric":[">",1]}]}', '{"a":1e400}', True),
    ("numbers of more than 15 digits", '{"a":[{"numeric":[">",1]}]}', '{"a":123456789012345}', False),
    ("numbers of more than 15 digits", '{"a":[{"exists":true}]}', '{"a":1e400}', False),
    ("a quote inside a prefix or suffix", '{"a":[{"prefix":"x\\""}]}', '{"a":"x"}', True),
    ("a quote inside a prefix or suffix", '{"a":[{"anything-but":{"suffix":"\\"x"}}]}', '{"a":"x"}', True),
    ("a quote inside a prefix or suffix", '{"a":[{"prefix":"x\\""}]}', '{"a":"x\\"y"}', False),
    ("a quote inside a prefix or suffix", '{"a":[{"prefix":"x\\""}]}', '{"a":"y"}', False),
    ("a condition outside $or and inside", '{"a":[1],"$or":[{"a":[2]},{"b":[1]}]}', '{"a":2}', True),
    ("a condition outside $or and inside", '{"a":[1],"$or":[{"a":[2]},{"b":[1]}]}', '{"a":1,"b":1}', False),
    ("a condition outside $or and inside", '{"$or":[{"a":[2]},{"a":[1]}]}', '{"a":2}', False),
    ("ß, final sigma", '{"a":[{"equals-ignore-case":"ß"}]}', '{"a":"ss"}', True),
    ("ß, final sigma", '{"a":[{"equals-ignore-case":"ß"}]}', '{"a":"SS"}', False),
    ("ß, final sigma", '{"a":[{"suffix":{"equals-ignore-case":"😀"}}]}', '{"a":"x😀"}', True),
    ("ß, final sigma", '{"a":[{"suffix":"😀"}]}', '{"a":"x😀"}', False),
    ("ß, final sigma", '{"a":[{"prefix":{"equals-ignore-case":"é"}}]}', '{"a":"École"}', False),
    ("an IP address as a plain value", '{"a":["10.0.0.1"]}', '{"a":"010.0.0.1"}', True),
    ("an IP address as a plain value", '{"a":["2001:db8::1"]}', '{"a":"2001:DB8:0::1"}', True),
    ("an IP address as a plain value", '{"a":["10.0.0.1"]}', '{"a":"10.0.0.1"}', False),
    ("an IP address as a plain value", '{"a":[{"anything-but":"10.0.0.1"}]}', '{"a":"010.0.0.1"}', False),
    ("cidr", '{"a":[{"cidr":"10.0.0.0/8"}]}', '{"a":"010.0.0.1"}', True),
    ("cidr", '{"a":[{"cidr":"10.0.0.0/8"}]}', '{"a":"::ffff:10.0.0.1"}', True),
    ("cidr", '{"a":[{"cidr":"10.0.0.0/8"}]}', '{"a":"a00::1"}', True),
    ("cidr", '{"a":[{"cidr":"::/0"}]}', '{"a":"10.0.0.1"}', True),
    ("cidr", '{"a":[{"cidr":"::/0"}]}', '{"a":6}', True),
    ("cidr", '{"a":[{"cidr":"10.0.0.0/8"}]}', '{"a":6}', False),
    ("cidr", '{"a":[{"cidr":"::/0"},7]}', '{"a":6}', False),
    ("cidr", '{"a":[{"cidr":"::/0"},{"anything-but":6}]}', '{"a":6}', True),
    ("cidr", '{"$or":[{"b":[{"cidr":"::/0"}]},{"a":[""],"b":[{"numeric":["<",1]}]}]}', '{"b":1}', True),
    ("cidr", '{"a":[{"cidr":"10.0.0.0/8"}]}', '{"a":"10.9.9.9"}', False),
    ("cidr", '{"a":[{"cidr":"10.0.0.0/8"}]}', '{"a":"11.0.0.0"}', False),
    ("a key with a dot", '{"a.b":[1]}', '{"a":{"b":1}}', True),
    ("a key with a dot", '{"a":{"b":[1]}}', '{"a.b":1}', True),
    ("a key with a dot", '{"a.b":[1]}', '{"a.b":1}', False),
    ("a key twice in an event", '{"a":[1]}', '{"a":1,"a":2}', True),
    ("a key twice in an event", '{"a":[1]}', '{"a":1,"b":1,"b":2}', False),
]

REFUSED = [
    ("contains, regex, all", {"a": [{"all": [{"contains": "x"}, {"regex": "x"}]}]}),
    ("anything-but", {"a": [{"anything-but": [1, "1"]}]}),
    ("anything-but", {"a": [{"anything-but": True}]}),
    ("anything-but", {"a": [{"anything-but": {"cidr": "10.0.0.0/8"}}]}),
    ("!=", {"a": [{"numeric": ["!=", 1]}]}),
    ("a range of one number", {"a": [{"numeric": [">=", 1, "<=", 1]}]}),
    ("a field called like an operator", {"$or": [{"prefix": [1]}, {"b": [1]}]}),
    ("a number of more than 15 digits", {"a": [{"anything-but": 9007199254740993}]}),
    ("cidr of one address", {"a": [{"cidr": "10.0.0.1/32"}]}),
    ("{}", {}),
]


@pytest.mark.parametrize(("name", "pattern", "event", "applies"), PAIRS)
def test_a_class_applies_where_its_trigger_is(name: str, pattern: str, event: str, applies: bool) -> None:
    """A pair is of the class it shows, and of no other; without the trigger it is of none."""
    pair = Pair(parse_pattern(pattern), event)
    found = [each.name for each in DIFFERENCES if each.applies(pair)]

    assert [each.startswith(name) for each in found] == ([True] if applies else [])


def test_every_class_is_shown_with_and_without_its_trigger() -> None:
    """No predicate goes untested."""
    shown = {(each.name, applies) for each in DIFFERENCES for name, *_, applies in PAIRS if each.name.startswith(name)}

    assert shown == {(each.name, applies) for each in DIFFERENCES for applies in (True, False)}


@pytest.mark.parametrize(("name", "pattern"), REFUSED)
def test_a_refused_pattern_is_of_one_class(name: str, pattern: dict[str, object]) -> None:
    """A pattern is of the class of refusals that it shows, and of no other."""
    found = [each.name for each in REFUSALS if each.applies(parse_pattern(pattern))]

    assert [each.startswith(name) for each in found] == [True]


def test_a_pattern_event_ruler_takes_is_of_no_class_of_refusals() -> None:
    """What both languages share is never excused."""
    shared = (
        '{"a":[1,"x",{"prefix":"x"},{"numeric":[">",1,"<",2]},{"cidr":"::/0"},{"anything-but":["x","y"]}],"prefix":[1]}'
    )

    assert [each.name for each in REFUSALS if each.applies(parse_pattern(shared))] == []


def test_every_class_is_a_row_of_the_page() -> None:
    """Each class is named in the table "Differences from AWS Event Ruler", in the same words."""
    section = PAGE.split("## Differences from AWS Event Ruler")[1].split("\n## ")[0].replace("`", "")
    rows = re.findall(r"^\| (.*?) \|", section, re.M)

    assert [each.name for each in DIFFERENCES if each.name not in rows] == []


def test_the_same_seed_draws_the_same_pairs_and_half_of_them_match() -> None:
    """Drawing is deterministic, its patterns are in the language and its events are events."""
    drawn = list(Drawing(5).rules(60, 20))
    rules = [(parse_pattern(write_document(pattern)), events) for pattern, events in drawn]
    results = "".join(reference(rules))

    assert drawn == list(Drawing(5).rules(60, 20))
    assert 0.4 < results.count("1") / len(results) < 0.75


@pytest.mark.parametrize("matcher", MATCHERS)
def test_our_matchers_return_one_character_per_event(matcher: str) -> None:
    """Responses come rule by rule, in the order of the events."""
    rules = [(parse_pattern({"a": [1]}), ['{"a":1}', '{"a":2}']), (parse_pattern({"a": [2]}), ['{"a":1}', '{"a":2}'])]

    assert list(MATCHERS[matcher](rules)) == ["10", "01"]


def test_a_pattern_matches_when_one_of_its_parts_does() -> None:
    """The parts of a pattern have one condition each and say together what the pattern says."""
    pattern = parse_pattern('{"a":[1,{"exists":false}],"$or":[{"b":[1,2]},{"c":[{"prefix":"x"}]}]}')
    written = [write_document(write_pattern(part)) for part in parts(pattern)]

    assert len(written) == 6
    assert '{"a":[{"exists":false}],"c":[{"prefix":"x"}]}' in written
    for event in ('{"a":1,"b":2}', '{"c":"xy"}', '{"a":2,"c":"xy"}', '{"a":1}'):
        assert any(matches(part, event) for part in written) == matches(pattern, event)


def test_a_pair_is_made_small() -> None:
    """What is not needed for the wrong result is taken out of pattern and event."""
    pair = Pair(
        parse_pattern('{"a":[1,{"prefix":"xyz"}],"b":{"c":[true]}}'), '{"a":["xyzzy",7],"b":{"c":true},"d":null}'
    )

    small = shrink(
        pair,
        lambda pairs: [matches(each.pattern, each.text) and "prefix" in str(each.pattern).lower() for each in pairs],
    )

    assert write_document(write_pattern(small.pattern)) == '{"a":[{"prefix":""}]}'
    assert small.text == '{"a":[""]}'


@pytest.mark.parametrize(("programs", "reported"), [((), "Java's compiler"), (("javac",), "Maven is missing")])
def test_a_missing_tool_is_reported_with_its_remedy(
    programs: tuple[str, ...], reported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without javac or Maven the user reads one line that says what to install."""
    put_programs(programs, tmp_path, monkeypatch)

    with pytest.raises(ruler.OracleMissing, match=f"{reported}.*apt-get install") as raised:
        ruler.prepare()
    assert "\n" not in str(raised.value)


def test_a_missing_network_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Maven says is passed on with the remedy, in one line."""
    put_programs(("javac", "mvn"), tmp_path, monkeypatch)

    with pytest.raises(ruler.OracleMissing, match=r"cannot fetch Event Ruler: .*no route.* Connect") as raised:
        ruler.prepare()
    assert "\n" not in str(raised.value)


def put_programs(names: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave only these programs on the path; each fails with an error of Maven's."""
    programs = folder / "programs"
    programs.mkdir()
    for name in names:
        (programs / name).write_text("#!/bin/sh\necho '[INFO] trying'\necho '[ERROR] no route to host'\nexit 1\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(ruler, "BUILT", folder / "built")
