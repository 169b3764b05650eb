"""Caches parsed rule files on the local disk, keyed by their content.

Parsing 10,000 rules from YAML takes many seconds of CPU time, and every `listen` task is a new process. Therefore the
parsed content of a file is stored in frozen form, one rule per line. The name of an entry is a hash of the file and of
everything that determines how it is read. The cache only saves time: a damaged or unreadable entry counts as missing,
and if entries cannot be written, every file is parsed.
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

from eventbridge.rules.rule_set import RuleSet
from eventbridge.rules.types import SOURCE_TYPES, TARGET_TYPES
from eventbridge.rules.vocabulary import FORMS

#: The code that determines how a rule file is read: these folders of our package, and these libraries.
_PACKAGES: Final = ("matching/pattern", "rules", "transform", "config", "event", "model", "targets", "sources")
_LIBRARIES: Final = ("jsonata", "pydantic", "re2", "yaml")

_SUFFIX: Final = ".rules"
#: The time for which an entry that the current load does not use is kept, in seconds; loads of other folders may use
#: it.
_KEPT_SECONDS: Final = 600.0

#: The entries that the last load of this process used, by name.
_remembered: dict[str, RuleSet] = {}


@dataclass(frozen=True)
class JoinedRules:
    """The result of one load without errors; `zones` are the time zones that its delivery windows name."""

    parts: tuple[RuleSet, ...]
    rule_set: RuleSet
    zones: frozenset[str]


#: The result of this process's last load. It is kept because joining 10,000 rules and checking them for conflicts
#: takes tens of milliseconds.
_joined: JoinedRules | None = None


def last_joined(parts: Sequence[RuleSet]) -> JoinedRules | None:
    """Return the result of the previous load if it had the same parts, else None."""
    known = _joined
    same = known is not None and len(parts) == len(known.parts) and all(map(is_, parts, known.parts))
    return known if same else None


def keep_joined(parts: Sequence[RuleSet], rule_set: RuleSet, zones: frozenset[str]) -> JoinedRules:
    """Return the result of joining `parts`, and remember it for the next load."""
    global _joined
    _joined = kept = JoinedRules(tuple(parts), rule_set, zones)
    return kept


class RuleCache:
    """The cache entries in one folder, for one load: call `find` or `keep` for each file, then `forget_others`.

    Concurrent processes are safe, because each replaces whole entries, and entries of the same name have the same
    content.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` holds the entries. It is created with the first entry, but its parent is never created."""
        self._folder = folder
        self._used: dict[str, RuleSet] = {}
        self._has_new_entries = False

    def find(self, content: bytes) -> RuleSet | None:
        """Return the parsed content of a file with these bytes, or None if it is not in the cache."""
        name = _name(content)
        found = _remembered.get(name) or self._entry(name)
        if found is not None:
            self._used[name] = found
        return found

    def keep(self, content: bytes, rules: RuleSet) -> RuleSet:
        """Store `rules`, the parsed content of a file without errors, and return it.

        A file that uses a plug-in is not stored, because its package may change how it is read without a new version.
        """
        if _uses_plug_in(rules):
            return rules
        name = _name(content)
        self._used[name] = kept = RuleSet.join([rules])
        self._has_new_entries = True
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
        """Forget the entries that this load did not use; those on disk are deleted once they are 10 minutes old."""
        global _remembered
        _remembered = self._used
        if not self._has_new_entries:  # no new entry replaces an old one
            return
        before = time.time() - _KEPT_SECONDS
        try:
            for entry in self._folder.glob(f"*{_SUFFIX}"):
                if entry.stem not in self._used and entry.stat().st_mtime < before:
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
        except ValidationError:
            return None


def _uses_plug_in(rules: RuleSet) -> bool:
    targets = [target for rule in rules.rules.values() for target in rule.destinations.values()]
    return any(TARGET_TYPES.plug_in(target.type) or target.transform.form not in FORMS for target in targets) or any(
        SOURCE_TYPES.plug_in(bus.source.type) for bus in rules.buses.values()
    )


def _name(content: bytes) -> str:
    return hashlib.blake2b(content, key=reader_stamp(), digest_size=16).hexdigest()


def _digest(name: str, text: bytes) -> bytes:
    """Return the checksum over an entry and its name, as hex digits."""
    return hashlib.blake2b(text, key=name.encode(), digest_size=16).hexdigest().encode()


@cache
def reader_stamp() -> bytes:
    """Return a hash of everything that determines how a rule file is read, except the file itself."""
    digest = hashlib.blake2b(digest_size=32)
    root = Path(__file__).parent.parent
    for file in reader_sources(root):
        digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes() + b"\0")
    digest.update(f"{_installed()} {sys.version}".encode())
    return digest.digest()


def _installed() -> list[str]:
    """Return the names and versions of all distributions in the folders of our libraries.

    They are read from directory names, because importlib.metadata would open ten files in every process.
    """
    specs = [find_spec(name) for name in _LIBRARIES]
    origins = [spec.origin for spec in specs if spec is not None and spec.origin is not None]
    folders = {path for path in sys.path if path and any(each.startswith(f"{path}{os.sep}") for each in origins)}
    return sorted(each.name for folder in folders for each in Path(folder).glob("*-info"))


def reader_sources(root: Path) -> list[Path]:
    """Return the source files of our package that may affect how a rule file is read."""
    packages = (file for package in _PACKAGES for file in (root / package).rglob("*.py"))
    return sorted([*root.glob("*.py"), *root.glob("matching/*.py"), *packages])


def zones_of(rule_set: RuleSet) -> frozenset[str]:
    """Return the time zones of all delivery windows, which may disappear although no rule file changes."""
    rules = rule_set.with_field("deliver_between")
    windows = (target.deliver_between for rule in rules for target in rule.targets.values())
    return frozenset(window.time_zone for window in windows if window is not None)
