"""Defines the quality check of an hour: its measures, their bounds, and the failures."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

#: The kinds of subjects of a measure: a bus, a target of a rule, or a field about which a rule has an expectation.
SubjectKind = Literal["bus", "target", "field"]


@dataclass(frozen=True)
class Subject:
    """The subject of a measure; `name` is a bus or a rule; `part` is a target or a path, or "" for a bus."""

    kind: SubjectKind
    name: str
    part: str = ""

    def __str__(self) -> str:
        return {"bus": self.name, "target": f"{self.name}/{self.part}", "field": f"{self.name} {self.part}"}[self.kind]


@dataclass(frozen=True)
class Measure:
    """One number of an hour. A bound of None is not tested; `note` says why if a bound could not be tested."""

    subject: Subject
    name: str
    value: float
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""


@dataclass(frozen=True)
class QualityCheck:
    """The check of an hour: when it ran, the number of measures and of failures, and the path of the record."""

    hour: datetime
    checked_at: datetime
    measures: int
    failures: int
    record: str

    @property
    def passed(self) -> bool:
        """Whether no measure failed."""
        return self.failures == 0


@dataclass(frozen=True)
class QualityRecord:
    """The findings of a check. `open_batches` is the number of the hour's batches that were not committed yet; the
    measures do not include them.

    `dead_letters` are counts by `<rule>/<target>` and reason. `page` is the path of the Data Docs page in the store,
    "" if there was nothing to measure.
    """

    hour: datetime
    checked_at: datetime
    batches: int
    open_batches: int
    measures: tuple[Measure, ...]
    failures: tuple[Measure, ...]
    page: str
    dead_letters: dict[str, dict[str, int]] = field(default_factory=dict)
