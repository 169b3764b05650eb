"""Finds the rule files in a folder and its subfolders and reads their bytes; unreadable ones are errors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from eventbridge.errors import RuleError
from eventbridge.rules.node import Location, Node
from eventbridge.rules.vocabulary import FIELDS
from eventbridge.similar_names import similar

SUFFIXES = (".yaml", ".yml")

_TOP_FIELDS: Final = FIELDS["a rule file"]
#: The message and remedy for a file without any field of a rule file.
NO_RULE_FILE: Final = (
    f"this is not a rule file: it has none of the fields {', '.join(_TOP_FIELDS)}",
    "Write one of them, or move the file away",
)
_FIRST_WORD: Final = re.compile(rb"^(?:\{\s*)?[\"']?([a-z]{3,10})[\"']?\s*:", re.IGNORECASE | re.MULTILINE)
#: The minimum similarity of a misspelt field. It accepts `rule` for `rules`, but not `users`, which occurs in other
#: programs' files.
_NEARLY: Final = 0.85


def files_below(folder: Path, errors: list[RuleError]) -> list[Path]:
    """Return the rule files in a folder and its subfolders, sorted by path; errors are added to `errors`."""
    location = Location(str(folder), 1, 1)
    if folder.exists() and not folder.is_dir():
        errors.append(
            location.error("$", "this is a file, not a folder of rule files", "Name the folder that contains it")
        )
        return []
    if not folder.is_dir():
        remedy = "Create it, or set EVENTBRIDGE_RULES_FOLDER to the folder of your rule files"
        errors.append(location.error("$", "the folder of rule files does not exist", remedy))
        return []
    files = sorted(_visible_files(folder, errors))
    if not files:
        errors.append(location.error("$", "there is no rule file below this folder", "Write one that ends in .yaml"))
    return files


def _visible_files(folder: Path, errors: list[RuleError]) -> Iterator[Path]:
    """Yield each path that is named like a rule file, except hidden ones; record an error for an unreadable folder."""

    def unreadable(error: OSError) -> None:
        where = Location(str(error.filename), 1, 1)
        remedy = "Give the user that runs Airflow read access, or move it out of the rules folder"
        errors.append(where.error("$", f"this folder cannot be read: {error.strerror}", remedy))

    entered: set[Path] = set()
    for parent, folders, names in os.walk(folder, onerror=unreadable, followlinks=True):
        here = Path(parent)
        entered.add(here.resolve())
        # a link to a parent folder would lead to an endless loop
        folders[:] = [name for name in folders if not name.startswith(".") and (here / name).resolve() not in entered]
        for name in names:
            if not name.startswith(".") and Path(name).suffix in SUFFIXES:
                yield here / name


def content_of_file(path: Path, errors: list[RuleError]) -> bytes | None:
    """Return the bytes of a file; if it cannot be read, record an error and return None."""
    try:
        return path.read_bytes()
    except OSError as error:
        location = Location(str(path), 1, 1)
        errors.append(location.error("$", f"the file cannot be read: {error.strerror}", "Make it readable"))
        return None


def is_rule_file(top: Node | None, content: bytes) -> bool:
    """Return whether a file has a field of a rule file, perhaps misspelt.

    `top` is the parsed content. If it is not a mapping, or is None because the file cannot be parsed, each word at the
    beginning of a line that a colon follows is taken for a field.
    """
    if top is not None and isinstance(top.value, dict):
        names = list(top.value)
    else:
        names = [each.decode() for each in _FIRST_WORD.findall(content)]
    return any(similar(name.lower(), _TOP_FIELDS, cutoff=_NEARLY) for name in names)
