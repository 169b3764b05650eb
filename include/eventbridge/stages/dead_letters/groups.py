"""Dead letters in groups: of one rule, target and reason, and of errors that begin alike."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: Where an error begins to tell of one delivery: a number that is no status, an address, a time, an id.
_OF_ONE = re.compile(r"\d{4,}|\d+(?=[.:\-]\d)|['\"{\[(]")
_LONGEST = 100


@dataclass(frozen=True)
class DeadLetterGroup:
    """How many dead letters are of a rule, target and reason, and have an error that begins like this."""

    rule: str | None
    target: str | None
    reason: str
    error: str
    count: int


def dead_letter_groups(records: Iterable[Mapping[str, Any]]) -> list[DeadLetterGroup]:
    """Return the groups of dead letters, the largest first."""
    counts = Counter((each["rule"], each["target"], each["reason"], error_of(each["detail"])) for each in records)
    return [DeadLetterGroup(*key, count) for key, count in counts.most_common()]


def error_of(detail: str | None) -> str:
    """Return how an error begins, up to what tells of one delivery alone; a search for it finds the others."""
    return _OF_ONE.split(detail or "", maxsplit=1)[0][:_LONGEST].strip()
