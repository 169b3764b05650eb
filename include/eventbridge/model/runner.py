"""Defines the records that say which runner delivers for a target, and which process delivers for a runner in streaming
mode."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from eventbridge.model.batch import Batch, Range
from eventbridge.model.partition import ConsumerOffset, Partition


class LeftAt(NamedTuple):
    """The offset (excluded) of a partition up to which a runner delivered for a rule.

    It refers to the log with `bus_identity`, which for a bus without an identity is the `LastMessage.text` of the last
    message taken.
    """

    partition: Partition
    offset: int
    bus_identity: str = ""


@dataclass(frozen=True)
class Assignment:
    """The runner that last took a batch for a target.

    `left` is set once the runner has taken a batch without the target's rule, because rule files gave the rule to
    another runner, which delivers from these offsets. If it is empty, the runner still delivers for the rule at its own
    offsets.
    """

    runner: str
    left: tuple[LeftAt, ...] = ()


class OpenBatch(NamedTuple):
    """An uncommitted batch and the ranges that it takes."""

    batch: Batch
    ranges: tuple[Range, ...]


class Deliverers(NamedTuple):
    """The assignment of each (rule, target), all offsets, and the open batches by runner, read at one moment."""

    assignments: Mapping[tuple[str, str], Assignment]
    offsets: tuple[ConsumerOffset, ...]
    open: Mapping[str, OpenBatch]

    def departures(self, rules: Collection[str]) -> list[LeftAt]:
        """Return where runners stopped delivering for these rules, if no new runner has taken events for them yet."""
        return [each for (rule, _), was in self.assignments.items() if rule in rules for each in was.left]


@dataclass(frozen=True)
class StreamingLease:
    """The process that delivers a runner's events as they arrive; no other process may do so before `until`.

    `batch_id` is the batch that was opened last. `wants_next` is True if the streaming task ends soon and requests a
    standby. `next_holder` is the standby; its registration ends at `next_until` unless the standby renews it.
    """

    runner: str
    holder: str
    until: datetime
    batch_id: str | None = None
    wants_next: bool = False
    next_holder: str | None = None
    next_until: datetime | None = None

    def standby(self, now: datetime) -> str | None:
        """Return the standby that is registered at `now`, or None."""
        return self.next_holder if self.next_until is not None and self.next_until > now else None
