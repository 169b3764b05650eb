"""Which runner delivers for a target, and where it left the target's rule to another one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from eventbridge.model.batch import Batch, Range
from eventbridge.model.consumer_offset import ConsumerOffset
from eventbridge.model.partition import Partition


class LeftAt(NamedTuple):
    """Up to where (excluded) of a partition a runner delivered for a rule.

    It counts on the log of `bus_identity`, of a bus without one on that which has this last message.
    """

    partition: Partition
    offset: int
    bus_identity: str = ""


@dataclass(frozen=True)
class Assignment:
    """The runner that last took a batch for a target.

    `left`: it has taken one since without the target's rule, which rule files gave to another runner; from there on
    the other one delivers. Empty: it has not, and the rule stands where the runner does.
    """

    runner: str
    left: tuple[LeftAt, ...] = ()


class OpenBatch(NamedTuple):
    """A batch that is not committed, and what it takes."""

    batch: Batch
    ranges: tuple[Range, ...]


class Deliverers(NamedTuple):
    """One moment of the ledger: who delivers for each (rule, target), all offsets, and those runners' open batches."""

    assignments: Mapping[tuple[str, str], Assignment]
    offsets: tuple[ConsumerOffset, ...]
    open: Mapping[str, OpenBatch]

    def left(self, rules: Collection[str]) -> list[LeftAt]:
        """Return where rules of these names were left, of which their new runners have not taken anything yet."""
        return [each for (rule, _), was in self.assignments.items() if rule in rules for each in was.left]
