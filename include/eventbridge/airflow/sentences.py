"""The sentences that tasks log about deliveries, each of bounded length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: The most targets in a sentence, and the most events of each; below: the longest name or reason, in characters.
MOST_TARGETS, MOST_EVENTS = 5, 3
_LONGEST = 80


@dataclass(frozen=True)
class Failures:
    """Deliveries of one target that failed alike: how many, why, and the ids of some of their events."""

    count: int
    why: str = ""
    events: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = [short(each) for each in sorted(set(self.events)) if each][:MOST_EVENTS]
        parts = [short(self.why)] if self.why else []
        if named:
            more = ", ..." if self.count > len(named) else ""
            parts.append(f"{'event' if len(named) == 1 and not more else 'events'} {', '.join(named)}{more}")
        return "; ".join(parts)


@dataclass(frozen=True)
class TargetLine:
    """The deliveries of one target: `total` of them, and why some are not delivered."""

    name: str  # <rule>/<target>
    total: int
    delivered: int = 0
    dead: Failures = Failures(0)
    waiting: Failures = Failures(0)

    def __str__(self) -> str:
        if self.delivered == self.total:
            return f"{short(self.name)}: {self.total:,} of {self.total:,} delivered"
        parts = [f"{self.delivered:,} of {self.total:,} delivered"] if self.delivered else []
        for what, failures in (("dead-lettered", self.dead), ("to be tried again", self.waiting)):
            if failures.count:
                why = f", {failures}" if str(failures) else ""
                parts.append(f"{failures.count:,} of {self.total:,} {what}{why}")
        unsent = self.total - self.delivered - self.dead.count - self.waiting.count
        if unsent:
            parts.append(f"{unsent:,} of {self.total:,} not sent")
        return f"{short(self.name)}: {'; '.join(parts)}"

    @property
    def is_delivered(self) -> bool:
        """Whether all deliveries are delivered."""
        return self.delivered == self.total


def sentence_about(lines: Iterable[TargetLine]) -> str:
    """Return one sentence about targets, those with the most failures first, and the numbers of the rest."""
    ordered = sorted(lines, key=lambda each: (each.is_delivered, -each.dead.count, -each.waiting.count, each.name))
    rest = ordered[MOST_TARGETS:]
    parts = [str(each) for each in ordered[:MOST_TARGETS]]
    if rest:
        numbers = [
            f"{sum(each.delivered for each in rest):,} of {sum(each.total for each in rest):,} delivered",
            *_counted("dead-lettered", [each.dead for each in rest]),
            *_counted("to be tried again", [each.waiting for each in rest]),
        ]
        parts.append(f"{len(rest):,} more targets: {', '.join(numbers)}")
    return ". ".join(parts)


def short(text: str) -> str:
    """Return text from outside fit for a sentence: one line, without control characters, truncated."""
    shown = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text[: _LONGEST + 1])
    return shown if len(text) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."


def _counted(what: str, groups: Sequence[Failures]) -> list[str]:
    count = sum(each.count for each in groups)
    return [f"{count:,} {what}"] if count else []
