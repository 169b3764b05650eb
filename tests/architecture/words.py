"""Words that this project does not use, and the word to use in place of each.

A word is found in prose, comments, messages and identifiers alike: in `ordered_by`, `OrderedBy` and "ordered by" the
words are separated by an underscore, by a capital letter, or by spaces, also over the end of a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

#: Private words and phrases, each with the word to use. A plural or a verb form is a word of its own.
WORDS: Mapping[str, str] = {
    "anew": "again",
    "heed": "apply",
    "heeds": "applies",
    "heeded": "applied",
    "mend": "fix",
    "mends": "fixes",
    "mended": "fixed",
    "mending": "fixing",
    "leave behind": "abandon",
    "leaves behind": "abandons",
    "left behind": "abandoned, orphaned or lost",
    "wish": "request",
    "wishes": "requests",
    "heir": "successor",
    "has heir": "has_successor",
    "whoever": "the name of what acts, or anyone",
    "express lane": "streaming mode",
    "express mode": "streaming mode",
    "doorbell": "watcher",
    "books balance": "reconciled",
    "parked": "pending",
    "intake": "ingestion",
    "spool": "inbox",
    "spooled": "stored in the inbox",
    "ordered by": "ordering_key",
    "invisible time": "visibility_timeout",
    "if deleted": "offset_reset",
    "rule mistakes": "rule errors",
    "address guard": "SSRF protection",
    "turned down": "rejected",
    "unsay": "clear",
    "water line": "watermark",
    "closer process": "committer",
    "costly": "budgeted or expensive",
    "heard of": "known, or reported",
    "told": "reported, shown, distinguished, instructed or notified",
    "untold": "unreported",
    "of whom": "a sentence with a subject",
    "counted apart": "counted separately",
    "made again": "rebuilt",
    "matches today": "current_version_matches",
    "under way": "in progress",
    "looked at": "checked, read or searched",
    "verdict": "status",
    "verdicts": "statuses",
}
#: These are banned only in names: "ordered by offset" is plain English.
_ONLY_NAMES = frozenset({"ordered by", "if deleted", "looked at"})
#: Names of RocketMQ that hold such a word.
_FOREIGN = re.compile(r"CHANGE_INVISIBLE_TIME|invisibleTime")

#: Verbs and adjectives that were the names of classes; a class is named by what it holds.
CLASSES = frozenset(
    {"Said", "Kept", "Stay", "Look", "Some", "Want", "Lack", "Wish", "Seat", "Aside", "Nap", "Spare", "Company"}
    | {"Presence", "Sight", "Effect", "Looks", "Trouble", "Door"}
)

#: A function whose name is a bare preposition phrase or participle. Such a name lacks its verb, or the noun that it
#: returns: `_of_batch`, `_shown`.
_FRAGMENT = re.compile(
    r"^\s*(?:async )?def (?P<name>_?(?:of|at|behind|below|beside|within)(?:_\w+)?"
    r"|_?(?:shown|listed|drawn|written|found|given|made|kept|taken|named|chosen|asked|sent|seen|known))\(",
    re.MULTILINE,
)


class Finding(NamedTuple):
    """A word that is not used here: on which line it stands, and what to write."""

    line: int
    word: str
    use: str


def _separated(words: str) -> str:
    return ("_" if words in _ONLY_NAMES else r"[\s_#-]+").join(words.split())


def _in_camel_case(words: str) -> str:
    first, *others = words.title().split()
    return f"(?:{first}|(?<![A-Za-z]){first.lower()}){''.join(others)}(?![a-z])"


def _joined(word: str) -> str:
    return re.sub(r"[\W_]+", "", word).lower()


_USES = {_joined(words): use for words, use in WORDS.items()}
_LONGEST_FIRST = sorted(WORDS, key=len, reverse=True)
_FOUND = re.compile(
    rf"(?<![A-Za-z])(?i:{'|'.join(map(_separated, _LONGEST_FIRST))})(?![a-z])"
    rf"|{'|'.join(map(_in_camel_case, _LONGEST_FIRST))}"
)


#: Looked for first: most texts have none of them, and the search for words is slow.
_LONGEST_PARTS = frozenset(max(words.split(), key=len) for words in WORDS)
_CLASS = re.compile(r"^\s*class (?P<name>\w+)", re.MULTILINE)


def words_found(text: str) -> list[Finding]:
    """Return the words of a text that this project does not use, by line."""
    lowered = text.lower()
    if not any(part in lowered for part in _LONGEST_PARTS):
        return []
    own = _FOREIGN.sub(lambda name: "-" * len(name.group()), text)
    return [
        Finding(own.count("\n", 0, found.start()) + 1, found.group(), _USES[_joined(found.group())])
        for found in _FOUND.finditer(own)
    ]


def classes_found(source: str) -> list[Finding]:
    """Return the classes of a Python source whose name is a verb or an adjective, by line."""
    return [
        Finding(source.count("\n", 0, found.start("name")) + 1, found["name"], "a noun for what it holds")
        for found in _CLASS.finditer(source)
        if found["name"].lstrip("_") in CLASSES
    ]


def fragments_found(source: str) -> list[Finding]:
    """Return the functions of a Python source that are named by a preposition phrase or a participle, by line."""
    return [
        Finding(source.count("\n", 0, found.start("name")) + 1, found["name"], "a verb, or the noun that it returns")
        for found in _FRAGMENT.finditer(source)
    ]
