"""What rule files held when they were read, kept on local disk and known again by their content.

To read 10,000 rules of YAML takes many seconds of CPU time, and every `listen` is a process of its own. So what a file
held is written down as it is frozen, a rule a line, under a name made of the file's content and of all sources that
read it. A cache may only ever save time: an entry that is damaged or cannot be read is as good as none, and where
none can be written there is none.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from operator import is_
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from eventbridge.errors import TypeUnusable
from eventbridge.rule.rule_set import RuleSet

#: Whatever decides what a rule file means: our sources that read one, and the libraries they ask.
_PACKAGES: Final = ("pattern", "rule", "transform", "config", "event", "model", "targets", "sources")
_LIBRARIES: Final = ("jsonata", "pydantic", "re2", "yaml")

_SUFFIX: Final = ".rules"
#: How long an entry is kept for files that are not there (any more): those of another folder may be read in turns.
_KEPT_SECONDS: Final = 600.0

#: What this process has read already, by the names of the entries: of one load, those that were asked for.
_remembered: dict[str, RuleSet] = {}


@dataclass(frozen=True)
class JoinedRules:
    """What the files of one load came to, without any error; `zones`: the time zones that its windows name."""

    parts: tuple[RuleSet, ...]
    rule_set: RuleSet
    zones: frozenset[str]


#: That of the last load of this process: to join 10,000 rules and look for conflicts takes tens of milliseconds.
_joined: JoinedRules | None = None


def last_joined(parts: Sequence[RuleSet]) -> JoinedRules | None:
    """Return what the same parts came to in the load before; None if any is another."""
    known = _joined
    same = known is not None and len(parts) == len(known.parts) and all(map(is_, parts, known.parts))
    return known if same else None


def keep_joined(parts: Sequence[RuleSet], rule_set: RuleSet, zones: frozenset[str]) -> JoinedRules:
    """Have the next load know what these parts came to."""
    global _joined
    _joined = kept = JoinedRules(tuple(parts), rule_set, zones)
    return kept


class RuleCache:
    """The entries below one folder, for one load: `find` or `keep` each file, then `forget_others`.

    Of any number of processes each writes whole entries, and equal ones under the same name.
    """

    def __init__(self, folder: Path) -> None:
        """Take the folder, which is made when there is something to keep; that which it lies in is not."""
        self._folder = folder
        self._asked: dict[str, RuleSet] = {}
        self._kept = False

    def find(self, content: bytes) -> RuleSet | None:
        """Return what a file of this content holds, None if it is not known."""
        name = _name(content)
        found = _remembered.get(name) or self._entry(name)
        if found is not None:
            self._asked[name] = found
        return found

    def keep(self, content: bytes, rules: RuleSet) -> RuleSet:
        """Have a file of this content known again, and return `rules`: all that it holds, without any error."""
        name = _name(content)
        self._asked[name] = kept = RuleSet.joined([rules])
        self._kept = True
        self._write(name, kept.to_lines().encode())
        return kept

    def _write(self, name: str, text: bytes) -> None:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            descriptor, part = tempfile.mkstemp(suffix=_SUFFIX, prefix=".", dir=self._folder)
        except OSError:
            return
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_digest(name, text) + b"\n" + text)
            Path(part).replace(self._folder / f"{name}{_SUFFIX}")
        except OSError:
            Path(part).unlink(missing_ok=True)

    def forget_others(self) -> None:
        """Forget what this load did not ask for, on disk once it is 10 minutes old."""
        global _remembered
        _remembered = self._asked
        if not self._kept:  # nothing is new, so nothing is too much
            return
        before = time.time() - _KEPT_SECONDS
        try:
            for entry in self._folder.glob(f"*{_SUFFIX}"):
                if entry.stem not in self._asked and entry.stat().st_mtime < before:
                    entry.unlink()
        except OSError:
            return

    def _entry(self, name: str) -> RuleSet | None:
        try:
            digest, _, text = (self._folder / f"{name}{_SUFFIX}").read_bytes().partition(b"\n")
        except OSError:
            return None
        if digest != _digest(name, text):
            return None
        try:
            return RuleSet.from_lines(text.decode())
        except (TypeUnusable, ValidationError):  # somebody is at work on a package that adds a type
            return None


def _name(content: bytes) -> str:
    return hashlib.blake2b(content, key=reader_stamp(), digest_size=16).hexdigest()


def _digest(name: str, text: bytes) -> bytes:
    """Return what shows that an entry is whole, and the one of its name."""
    return hashlib.blake2b(text, key=name.encode(), digest_size=16).hexdigest().encode()


@cache
def reader_stamp() -> bytes:
    """Return a hash of everything that decides what a rule file means, beside the file."""
    digest = hashlib.blake2b(digest_size=32)
    root = Path(__file__).parent.parent
    for file in reader_sources(root):
        digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes() + b"\0")
    digest.update(f"{_installed()} {sys.version}".encode())
    return digest.digest()


def _installed() -> list[str]:
    """Return what is installed, each with its version, in the folders that our libraries lie in.

    All of it, and by its name alone: to ask for the version of each would open ten files in every process.
    """
    specs = [find_spec(name) for name in _LIBRARIES]
    origins = [spec.origin for spec in specs if spec is not None and spec.origin is not None]
    folders = {path for path in sys.path if path and any(each.startswith(f"{path}{os.sep}") for each in origins)}
    return sorted(each.name for folder in folders for each in Path(folder).glob("*-info"))


def reader_sources(root: Path) -> list[Path]:
    """Return the sources below the package's folder that may have a part in reading a rule file."""
    packages = (file for package in _PACKAGES for file in (root / package).rglob("*.py"))
    return sorted([*root.glob("*.py"), *packages])


def zones_of(rule_set: RuleSet) -> frozenset[str]:
    """Return the time zones of all windows: that a machine knows them no longer is seen without a file that changed."""
    rules = rule_set.with_field("deliver_between")
    windows = (target.deliver_between for rule in rules for target in rule.targets.values())
    return frozenset(window.time_zone for window in windows if window is not None)
