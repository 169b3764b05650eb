"""The check of an hour: what was measured, within which bounds, and what failed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

#: What a measure is about: a bus, a target of a rule, or a field that a rule expects something of.
SubjectKind = Literal["bus", "target", "field"]


@dataclass(frozen=True)
class Subject:
    """What a measure is about; `name` is a bus or a rule, `part` a target or a path, "" of a bus."""

    kind: SubjectKind
    name: str
    part: str = ""

    def __str__(self) -> str:
        return {"bus": self.name, "target": f"{self.name}/{self.part}", "field": f"{self.name} {self.part}"}[self.kind]


@dataclass(frozen=True)
class Measure:
    """One number of an hour; a bound that is None is not tested, and `note` says why not where that is no choice."""

    subject: Subject
    name: str
    value: float
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""


@dataclass(frozen=True)
class QualityCheck:
    """That an hour was checked: when, how many measures it has, how many failed, and where the record lies."""

    hour: datetime
    checked_at: datetime
    measures: int
    failures: int
    record: str

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return self.failures == 0


@dataclass(frozen=True)
class QualityRecord:
    """What a check found; `open_batches` of the hour were not committed then, and are not in its measures.

    `dead_letters` counts them by `<rule>/<target>` and reason. `page` is where the Data Docs page lies in the store, ""
    where there was nothing to measure.
    """

    hour: datetime
    checked_at: datetime
    batches: int
    open_batches: int
    measures: tuple[Measure, ...]
    failures: tuple[Measure, ...]
    page: str
    dead_letters: dict[str, dict[str, int]] = field(default_factory=dict)
