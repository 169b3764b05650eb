"""Rule files that are known again: the response is that of reading them again, whatever is in the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eventbridge
from eventbridge.errors import RuleFileError
from eventbridge.rules import RuleSet
from eventbridge.rules import cache as rule_cache
from eventbridge.rules.cache import RuleCache, reader_sources
from eventbridge.rules.load import load_rules

BUS = "buses:\n  orders:\n    source: {type: embedded}\n"
RULE = "bus: orders, pattern: {type: [placed], data: {n: [1.0, 1e400]}}, targets: {z: {type: file, path: /x}, %s}"
A = f"rules:\n  second: {{{RULE % 'a: {type: file, path: /y}'}}}\n  first: {{{RULE % 'b: {type: file, path: /y}'}}}\n"

LATE = (
    "rules:\n  late:\n    bus: orders\n    pattern: {}\n    targets:\n      t: {type: file, path: /x, "
    "deliver_between: {hours: '08:00-18:00', time_zone: Europe/Berlin, blackout_dates: ['2026-12-24']}}\n"
)

#: What goes together with BUS.
GOOD = [
    A,
    A.replace("first", "third").replace("second", "fourth"),
    LATE,
    "rules:\n  alarm: {bus: eventbridge, pattern: {}, targets: {t: {type: file, path: /x}}}\n",
    "rules:\n  wide: {bus: orders, pool: p, concurrency: 2, pattern: {}, targets: {t: {type: file, path: /x}}}\n",
    "buses:\n  other:\n    source: {type: embedded, start_at: 2013-01-01T00:00:00+01:00}\n",
]

#: What does not go together with some of those, or is wrong by itself.
BAD = [
    "rules:\n  first: {bus: orders, pattern: {}, targets: {t: {type: file, path: /x}}}\n",
    "rules:\n  lost: {bus: nobodys, pattern: {}, targets: {t: {type: file, path: /x}}}\n",
    "rules:\n  slim: {bus: orders, pool: p, concurrency: 1, pattern: {}, targets: {t: {type: file, path: /x}}}\n",
    "rules:\n  own: {bus: other, runner: orders, pattern: {}, targets: {t: {type: file, path: /x}}}\n",
    "rules:\n  wrong: {bus: orders, pattern: {type: x}, targets: {t: {type: fil}}}\n",
    "rules:\n\ttab: 1\n",
    "buses: {eventbridge: {source: {type: embedded}}}\n",
    "",
]

FOLDERS = st.lists(st.sampled_from(GOOD), unique=True).map(lambda found: [BUS, *found]) | st.lists(
    st.sampled_from([BUS, *GOOD, *BAD]), min_size=1, max_size=5
)


def outcome(folder: Path, cache: Path | None = None) -> tuple[object, ...]:
    """Return all that a reading says: the rules in their order, as objects and frozen, or the errors."""
    try:
        found = load_rules(folder, cache=cache)
    except RuleFileError as error:
        return (error.errors,)
    return found, list(found.buses), [(rule.name, *rule.targets) for rule in found.rules.values()], found.to_json()


def in_new_process(folder: Path, cache: Path, include: Path = Path(eventbridge.__file__).parent.parent) -> str:
    """Return the hash of what another process reads, which remembers nothing."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom eventbridge.rules.load import load_rules\n"
        "print(load_rules(Path(sys.argv[1]), cache=Path(sys.argv[2])).hash)"
    )
    called = [sys.executable, "-c", code, str(folder), str(cache)]
    environment = {**os.environ, "PYTHONPATH": str(include)}
    return subprocess.run(called, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return a folder of two rule files that were read once, and the cache; the process has forgotten them."""
    folder, cache = tmp_path / "rules", tmp_path / "cache"
    folder.mkdir()
    (folder / "a.yaml").write_text(A)
    (folder / "b.yaml").write_text(BUS)
    monkeypatch.setattr("eventbridge.rules.cache._remembered", {})
    load_rules(folder, cache=cache)
    monkeypatch.setattr("eventbridge.rules.cache._remembered", {})
    return folder, cache


@given(steps=st.lists(FOLDERS, min_size=1, max_size=4))
def test_the_same_with_a_cache_as_without(steps: list[list[str]]) -> None:
    """Of files that come and go, wrong alone or together: the same rules in the same order, the same errors."""
    with tempfile.TemporaryDirectory() as location:
        folder, cache = Path(location, "rules"), Path(location, "cache")
        folder.mkdir()
        for contents in steps:
            for file in folder.iterdir():
                file.unlink()
            for number, content in enumerate(contents):
                (folder / f"{number}.yaml").write_text(content)
            read = outcome(folder)
            assert outcome(folder, cache) == read
            assert outcome(folder, cache) == read
            rule_cache._remembered = {}
            assert outcome(folder, cache) == read  # from the disk


def test_a_file_read_once_is_taken_from_the_cache(folders: tuple[Path, Path]) -> None:
    """Not read a second time, also by another process: what the cache says of a content is believed."""
    folder, cache = folders
    other = RuleSet.from_json(load_rules(folder).to_json().replace('"/y"', '"/elsewhere"'))

    RuleCache(cache).keep(A.encode(), RuleSet(rules=other.rules))

    assert load_rules(folder, cache=cache).rules["first"].targets["b"].path == "/elsewhere"
    assert in_new_process(folder, cache) == load_rules(folder, cache=cache).hash != load_rules(folder).hash


def _cut(entry: Path) -> None:
    entry.write_bytes(entry.read_bytes()[:-7])


def _change(entry: Path) -> None:
    entry.write_bytes(entry.read_bytes().replace(b"orders", b"0rders"))


def _empty(entry: Path) -> None:
    entry.write_bytes(b"")


def _exchange(entry: Path) -> None:
    other = next(each for each in entry.parent.iterdir() if each != entry)
    entry.write_bytes(other.read_bytes())


def _make_folder(entry: Path) -> None:
    entry.unlink()
    entry.mkdir()


@pytest.mark.parametrize("damage", [_cut, _change, _empty, _exchange, _make_folder])
def test_an_entry_that_is_damaged_is_read_again(folders: tuple[Path, Path], damage: Callable[[Path], None]) -> None:
    """Cut short, changed, empty, of another file, or no file at all: as if it were not there."""
    folder, cache = folders
    for entry in sorted(cache.iterdir()):
        damage(entry)

    assert outcome(folder, cache) == outcome(folder)


def test_a_missing_time_zone_is_found(folders: tuple[Path, Path]) -> None:
    """A machine may know fewer zones than the one that read the file: then it is read and refused."""
    folder, cache = folders
    (folder / "c.yaml").write_text(LATE)
    text = load_rules(folder).to_json().replace("Europe/Berlin", "Mars/Base")
    written = LATE.replace("Europe/Berlin", "Mars/Base")
    (folder / "c.yaml").write_text(written)
    RuleCache(cache).keep(written.encode(), RuleSet(rules={"late": RuleSet.from_json(text).rules["late"]}))

    with pytest.raises(RuleFileError, match=r"c\.yaml:6:.*Mars/Base"):
        load_rules(folder, cache=cache)


def test_processes_at_once_read_the_same(folders: tuple[Path, Path]) -> None:
    """Each writes and reads while others do; what is left are whole entries."""
    folder, cache = folders
    shutil.rmtree(cache)
    code = (
        "import shutil, sys\nfrom pathlib import Path\nfrom eventbridge.rules import cache\n"
        "from eventbridge.rules.load import load_rules\n"
        "for number in range(40):\n"
        "    cache._remembered = {}\n"
        "    if number % 3 == 0: shutil.rmtree(sys.argv[2], ignore_errors=True)\n"
        "    print(load_rules(Path(sys.argv[1]), cache=Path(sys.argv[2])).hash)"
    )
    called = [sys.executable, "-c", code, str(folder), str(cache)]
    running = [subprocess.Popen(called, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = {line for process in running for line in process.communicate(timeout=120)[0].splitlines()}

    assert [process.returncode for process in running] == [0, 0, 0]
    assert said == {load_rules(folder).hash}
    assert outcome(folder, cache) == outcome(folder)
    assert not [entry for entry in cache.iterdir() if entry.name.startswith(".")]


def test_changed_code_reads_files_again(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """The meaning of a file depends on our sources: an entry of other sources is not read."""
    folder, cache = folders
    package = Path(eventbridge.__file__).parent
    copy = tmp_path / "include" / "eventbridge"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    before = set(cache.iterdir())
    in_new_process(folder, cache, copy.parent)
    assert set(cache.iterdir()) == before

    with (copy / "rules" / "read_target.py").open("a") as source:
        source.write("# changed\n")
    in_new_process(folder, cache, copy.parent)

    assert len(set(cache.iterdir()) - before) == 2


def test_every_source_file_of_the_reader_is_in_the_cache_key() -> None:
    """Whatever of ours is imported to read a file of all forms of transforms decides what it means."""
    code = (
        "import sys, tempfile\nfrom pathlib import Path\nfrom eventbridge.rules.load import load_rules\n"
        "with tempfile.TemporaryDirectory() as location:\n"
        "    Path(location, 'a.yaml').write_text(sys.argv[1])\n"
        "    load_rules(Path(location))\n"
        "print('\\n'.join(m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'eventbridge'))"
    )
    forms = [
        "form: FIELDS, steps: [{delete: [$.data.x]}]",
        "form: JSONATA, value: data.x",
        "form: SQL, value: 'data:x'",
    ]
    forms += ["form: JSONPATH, value: $.data.x", "form: TEMPLATE, value: {a: $.id}, template: '${a}'"]
    targets = ", ".join(f"t{n}: {{type: file, path: /x, transform: {{{form}}}}}" for n, form in enumerate(forms))
    pattern = "{data: {a: [{regex: 'a+'}], b: [{wildcard: 'a*'}], c: [{cidr: 10.0.0.0/8}]}}"
    text = f"{BUS}rules:\n  r: {{bus: orders, where: 'data:x > 1', pattern: {pattern}, targets: {{{targets}}}}}\n"
    run = subprocess.run([sys.executable, "-c", code, text], capture_output=True, text=True, check=True)
    root = Path(eventbridge.__file__).parent
    imported = {Path(line) for line in run.stdout.splitlines()}

    assert root / "transform" / "definition.py" in imported
    assert imported - set(reader_sources(root)) == set()


@pytest.mark.parametrize("location", ["file", "nowhere/cache"])
def test_where_no_cache_can_be_there_is_none(tmp_path: Path, location: str) -> None:
    """A cache that cannot be made is not an error, and the folder it would lie in is not made for it."""
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "a.yaml").write_text(A + BUS)
    (tmp_path / "file").write_text("mine")

    assert outcome(folder, tmp_path / location) == outcome(folder)
    assert (tmp_path / "file").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


def test_entries_of_removed_files_are_removed(folders: tuple[Path, Path]) -> None:
    """When a new entry is kept, an old unused one is removed; foreign files are left alone."""
    folder, cache = folders
    (cache / ".died.rules").write_bytes(b"half")
    (cache / "notes.txt").write_text("mine")
    long_ago = time.time() - 3_600
    for entry in cache.iterdir():
        os.utime(entry, (long_ago, long_ago))
    (folder / "a.yaml").write_text(A.replace("first", "third"))
    load_rules(folder, cache=cache)
    assert len(list(cache.iterdir())) == 3
    (folder / "a.yaml").write_text(A)
    load_rules(folder, cache=cache)

    assert len(list(cache.iterdir())) == 4  # the one before is too new: a process may be reading both


def test_cache_entries_are_private(folders: tuple[Path, Path]) -> None:
    """No other user can read an entry, and a file with an error, a secret by its looks, has none."""
    folder, cache = folders
    entries = set(cache.iterdir())
    (folder / "c.yaml").write_text(BUS.replace("orders", "more") + "    password: hunter2\n")
    with pytest.raises(RuleFileError):
        load_rules(folder, cache=cache)

    assert set(cache.iterdir()) == entries
    assert [oct(path.stat().st_mode & 0o777) for path in (cache, *entries)] == ["0o700", "0o600", "0o600"]
