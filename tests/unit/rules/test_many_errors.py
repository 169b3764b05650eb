"""Names that do not exist are reported in bounded time, however many there are, with suggestions for the first ones."""

from __future__ import annotations

import json
import random
import time
import zoneinfo
from pathlib import Path
from typing import Any

import pytest

from eventbridge.errors import RuleFileError
from eventbridge.rules.load import load_rules
from eventbridge.similar_names import MAX_SUGGESTED, similar

#: Processor time that reading a folder may take. To compare all names of any of them takes minutes.
SECONDS = 20.0
MANY = 5_000
FILE = {"type": "file", "path": "a.jsonl"}
BUSES = {"b": {"source": {"type": "embedded"}}}


def rule(**fields: Any) -> dict[str, Any]:
    """Return a rule, complete but for what `fields` say."""
    return {"bus": "b", "pattern": {}, "targets": {"t": FILE}, **fields}


FOLDERS: dict[str, dict[str, Any]] = {
    "buses": {
        "buses": {f"orders{number}": BUSES["b"] for number in range(MANY)},
        "rules": {f"r{number}": rule(bus=f"ordres{number}") for number in range(MANY)},
    },
    "long names that are nearly equal": {
        "buses": {"a" * 90 + str(number): BUSES["b"] for number in range(MANY)},
        "rules": {f"r{number}": rule(bus="a" * 90 + f"b{number}") for number in range(MANY)},
    },
    "runners": {
        "buses": BUSES,
        "runners": {f"runenr{number}": {"mode": "streaming"} for number in range(MANY)},
        "rules": {f"r{number}": rule(runner=f"runner{number}") for number in range(MANY)},
    },
    "outputs of a test": {
        "buses": BUSES,
        "rules": {
            "r": rule(
                targets={f"target{number}": FILE for number in range(MANY)},
                tests=[{"event": {"type": "x"}, "outputs": {f"taregt{number}": {} for number in range(MANY)}}],
            )
        },
    },
    "topics": {
        "buses": {
            "b": {
                "source": {"type": "embedded", "topics": [f"topic{number}" for number in range(MANY)]},
                "weights": {f"tpoic{number}": 2 for number in range(MANY)},
            }
        },
        "rules": {"r": rule()},
    },
}


def errors_in(folder: Path, held: dict[str, Any]) -> list[str]:
    """Return what is said of a folder with one file, in the order of lines."""
    (folder / "rules.yaml").write_text(json.dumps(held))
    with pytest.raises(RuleFileError) as caught:
        load_rules(folder, checked=True)
    return [str(error) for error in caught.value.errors]


@pytest.mark.parametrize("name", FOLDERS)
def test_thousands_of_unknown_names_are_reported_in_bounded_time(name: str, tmp_path: Path) -> None:
    """5,000 names that do not exist, and as many that do: each is reported, and the first ones have a suggestion."""
    began = time.process_time()
    said = errors_in(tmp_path, FOLDERS[name])

    assert time.process_time() - began < SECONDS
    assert len(said) == MANY
    assert sum("Did you mean" in each for each in said) == MAX_SUGGESTED
    assert max(map(len, said)) < 1_000, "a remedy does not list thousands of names"


def test_the_suggestion_among_many_names_is_the_right_one() -> None:
    """A letter too many at any position of a name leads to that name among 10,000."""
    names = [f"orders-{number:05}-of-shop" for number in range(10_000)]
    slips = random.Random(31)
    for name in slips.sample(names, 20):
        index = slips.randrange(1, len(name) - 1)
        assert similar(f"{name[:index]}x{name[index:]}", names) == [name]


def test_a_word_that_is_no_name_has_no_suggestion() -> None:
    """A name has at most 100 characters; to compare longer texts takes time that grows with their product."""
    assert similar("a" * 101, ["a" * 101, "a" * 100]) == []
    assert similar("a" * 100, ["a" * 101, "a" * 99]) == ["a" * 99]


def test_time_zones_are_looked_for_once_a_load(tmp_path: Path) -> None:
    """2,000 delivery windows are read in seconds; it took 4 ms each to look for the zones of the machine."""
    window = {"hours": "08:00-18:00", "time_zone": "Europe/Berlin"}
    held = {f"t{number}": FILE | {"deliver_between": window} for number in range(2_000)}
    (tmp_path / "rules.yaml").write_text(json.dumps({"buses": BUSES, "rules": {"r": rule(targets=held)}}))
    began = time.process_time()

    assert len(load_rules(tmp_path).rules["r"].targets) == 2_000
    assert time.process_time() - began < 5.0


def test_a_time_zone_that_a_machine_no_longer_knows_is_an_error(tmp_path: Path) -> None:
    """The zones are looked for again in the next load of the same process."""
    window = {"hours": "08:00-18:00", "time_zone": "Mars/Olympus"}
    held = {"buses": BUSES, "rules": {"r": rule(targets={"t": FILE | {"deliver_between": window}})}}
    folder, zones = tmp_path / "rules", tmp_path / "zones"
    folder.mkdir()
    (zones / "Mars").mkdir(parents=True)
    (folder / "rules.yaml").write_text(json.dumps(held))
    before = zoneinfo.TZPATH
    try:
        (zones / "Mars" / "Olympus").write_bytes(b"TZif")
        zoneinfo.reset_tzpath([str(zones)])
        assert load_rules(folder).rules
        zoneinfo.reset_tzpath([])
        with pytest.raises(RuleFileError, match="'Mars/Olympus' is not a time zone"):
            load_rules(folder)
    finally:
        zoneinfo.reset_tzpath(before)
