"""Groups dead letters by rule, target, reason, and the beginning of the error."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: Where an error becomes specific to one delivery: a number that is no status, an address, a time, an id.
_OF_ONE = re.compile(r"\d{4,}|\d+(?=[.:\-]\d)|['\"{\[(]")
_LONGEST = 100


@dataclass(frozen=True)
class DeadLetterGroup:
    """The number of dead letters with a rule, target, reason, and beginning of the error."""

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
    """Return the beginning of an error, up to what is specific to one delivery; searching for it finds the group."""
    return _OF_ONE.split(detail or "", maxsplit=1)[0][:_LONGEST].strip()
