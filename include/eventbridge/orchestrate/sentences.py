"""What tasks log of deliveries: one sentence each, of bounded length, whatever a batch holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: Targets that a sentence names, events that it names of each, and characters of one name or reason.
MOST_TARGETS, MOST_EVENTS = 5, 3
_LONGEST = 80


@dataclass(frozen=True)
class Trouble:
    """Deliveries of one target that one sentence puts together: how many, why, and the ids of some of their events."""

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
    """How the deliveries of one target stand: `total` of them, and of those that are not delivered why."""

    name: str  # <rule>/<target>
    total: int
    delivered: int = 0
    dead: Trouble = Trouble(0)
    waiting: Trouble = Trouble(0)

    def __str__(self) -> str:
        if self.delivered == self.total:
            return f"{short(self.name)}: {self.total:,} of {self.total:,} delivered"
        parts = [f"{self.delivered:,} of {self.total:,} delivered"] if self.delivered else []
        for what, trouble in (("dead-lettered", self.dead), ("to be tried again", self.waiting)):
            if trouble.count:
                why = f", {trouble}" if str(trouble) else ""
                parts.append(f"{trouble.count:,} of {self.total:,} {what}{why}")
        left = self.total - self.delivered - self.dead.count - self.waiting.count
        if left:
            parts.append(f"{left:,} of {self.total:,} not sent")
        return f"{short(self.name)}: {'; '.join(parts)}"

    @property
    def is_well(self) -> bool:
        """Whether all of them are delivered."""
        return self.delivered == self.total


def sentence_about(lines: Iterable[TargetLine]) -> str:
    """Return one sentence about targets, those with the most trouble first, and about the rest of them in numbers."""
    ordered = sorted(lines, key=lambda each: (each.is_well, -each.dead.count, -each.waiting.count, each.name))
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
    """Return text that came from outside as it may stand in a sentence: one line, without control characters, cut."""
    shown = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text[: _LONGEST + 1])
    return shown if len(text) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."


def _counted(what: str, troubles: Sequence[Trouble]) -> list[str]:
    count = sum(each.count for each in troubles)
    return [f"{count:,} {what}"] if count else []
