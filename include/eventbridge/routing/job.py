"""Defines the jobs and results of route workers, which are sent as JSON.

This module must not import the ledger or Spark, because Spark workers import it and must start fast.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct, json, structs

from eventbridge.model.backtested import BacktestedSlice
from eventbridge.model.file_detail import RoutedShare, RoutedSlice
from eventbridge.rules import RuleSet
from eventbridge.store.protocol import Store


class RouteJob(Struct, frozen=True, kw_only=True):
    """The values that all tasks of a batch share.

    `attempt` is unique per try of the route stage; `replay_id` is part of every delivery id.
    """

    batch_id: str
    runner: str
    bus: str
    rule_set: str  # hash
    planned_at: datetime
    store_uri: str
    attempt: str
    event_max_size: int
    piece_max_deliveries: int
    piece_max_bytes: int
    replay_id: str = ""
    #: The rules, budgeted or not, whose shares are deferred, so that only their candidate events are recorded.
    later: tuple[str, ...] = ()
    #: The number of seconds that a Spark worker may take for one slice before it is killed; 0 for no limit.
    slice_seconds: float = 0.0
    #: Whether the job routes old events, for example in a replay. Such a job leaves half of Spark's task slots to other
    #: jobs.
    old: bool = False
    #: The CPU-seconds of shares after which a worker starts no more shares (see TotalBudget); 0 for no limit.
    budgeted_seconds: float = 0.0

    def another_try(self) -> RouteJob:
        """Return the job for another attempt, whose files have different names."""
        return structs.replace(self, attempt=uuid.uuid4().hex)


class Slice(Struct, frozen=True, tag="slice"):
    """Rows `row_from` (included) to `row_to` (excluded) of one buffer file; `slice_id` is the same in every try.

    Chunks are cut in the order of these ids, which is the order of partition and offset.
    """

    slice_id: str
    file: str
    row_from: int
    row_to: int


class RuleShare(Struct, frozen=True, tag="share"):
    """One rule's share of a batch: the rows of buffer files that the rule's pattern matches, oldest first.

    At most `cpu_seconds` are spent on it. If `last_resort`, a single event that uses up this time fails. If `give_up`
    (reason, text) is set, every event fails with it without being evaluated. For a rule with Spark SQL, `results` is
    the file with Spark's results for the events that it has evaluated (`sql_results`). `hold` says why Spark cannot
    evaluate the other events; they are not routed, and the rule is put on hold.
    """

    slice_id: str
    rule: str
    files: tuple[tuple[str, str], ...]  # (buffer file, encoded rows)
    cpu_seconds: float
    last_resort: bool = False
    give_up: tuple[str, str] | None = None
    results: str | None = None
    hold: str = ""


class ArchiveSpan(Struct, frozen=True, array_like=True):
    """Rows `first` (included) to `last` (excluded) of an archive file, limited to the ranges `offsets` unless that is
    None."""

    file: str
    first: int
    last: int
    offsets: tuple[tuple[int, int], ...] | None = None


class BacktestSlice(Struct, frozen=True, kw_only=True, tag="backtest"):
    """A part of the archive to match and count, without delivering or writing anything.

    The job's rule set is candidate A; `other` is the frozen rule set of candidate B, empty if there is none. `pairs`
    are the pairs of a rule of A and a rule of B to compare. For rules in `apart` (A's and B's), only the candidate
    events of their patterns are recorded, because these rules are budgeted or compared with a budgeted rule. At most
    `samples` of each kind are kept. For targets in `sampled` (A's and B's), no outputs are kept.
    """

    slice_id: str
    spans: tuple[ArchiveSpan, ...]
    samples: int
    other: str = ""
    pairs: tuple[tuple[str, str], ...] = ()
    apart: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    sampled: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


#: The kinds of tasks that a batch has, and all kinds of tasks.
BatchTask = Slice | RuleShare
Task = BatchTask | BacktestSlice


class JobTasks(Struct, frozen=True):
    """A job and its tasks, as they are sent to workers."""

    job: RouteJob
    tasks: tuple[Task, ...]

    def to_json(self) -> bytes:
        """Return the job and its tasks as JSON."""
        return _ENCODER.encode(self)

    @classmethod
    def from_json(cls, text: bytes) -> JobTasks:
        """Read what `to_json` wrote. Raises msgspec.DecodeError for anything else."""
        return _TASKS_DECODER.decode(text)


class SliceResult(Struct, frozen=True):
    """The result of a task: its delivery file (None if it wrote none), the number of rows, and their statistics."""

    slice_id: str
    path: str | None
    rows: int
    detail: RoutedSlice | RoutedShare | BacktestedSlice

    def to_json(self) -> bytes:
        """Return the result as JSON."""
        return _ENCODER.encode(self)

    @classmethod
    def from_json(cls, text: bytes) -> SliceResult:
        """Read what `to_json` wrote. Raises msgspec.DecodeError for anything else."""
        return _RESULT_DECODER.decode(text)


_ENCODER = json.Encoder()
_TASKS_DECODER = json.Decoder(JobTasks)
_RESULT_DECODER = json.Decoder(SliceResult)

#: The function that routes one task: `routing.task.route_task`, or a replacement.
RouteTask = Callable[[Store, RuleSet, RouteJob, Task], SliceResult]


class Router(Protocol):
    """Routes slices and the shares of rules, in this process or on Spark."""

    def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        """Route every task and yield the results, in any order, as the tasks finish.

        Raises SparkError if Spark cannot be reached or a task fails; results that were already yielded stay valid.
        """
