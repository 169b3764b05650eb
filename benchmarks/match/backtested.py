"""A backtest on a local Spark, and plain reading and matching, both run by `Remote`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from benchmarks.bench_site import BUS, Site
from benchmarks.match.kernel import Pass
from benchmarks.match.remote import tree_seconds
from benchmarks.match.spark import SparkSubject
from benchmarks.match.whole_route import rule_of

from eventbridge.backtest.run import ArchivePart, Candidate, backtest
from eventbridge.routing.job import RouteJob, SliceResult, Task
from eventbridge.rules import Bus, RuleSet
from eventbridge.spark.frame import route_frame

_SAMPLES = 3


class BacktestSubject(SparkSubject):
    """A session of Spark, and an installation whose archive is backtested with the rules of a file, one a line."""

    def __init__(self, installation: Site, folder: Path, rules: Path) -> None:
        super().__init__((), folder)
        patterns = [json.loads(line) for line in rules.read_text(encoding="utf-8").splitlines()]
        made = (rule_of(f"rule-{number:05d}", pattern) for number, pattern in enumerate(patterns))
        found = RuleSet(buses={BUS: Bus(name=BUS)}, rules={rule.name: rule for rule in made})
        self._candidate = Candidate("mixed", BUS, found)
        self._work = installation.open()

    def backtest(self, since: datetime, until: datetime) -> Pass:
        """Run the candidate over the events of batches that were planned in between."""
        before = tree_seconds(os.getpid())
        report = backtest(self._work, self._candidate, ArchivePart(since, until, _SAMPLES), self)
        seconds = tree_seconds(os.getpid()) - before
        return Pass(report.events, seconds, sum(rule.matched for rule in report.rules))

    def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        """Route tasks as one job of Spark: the router of the backtest."""
        for row in route_frame(self._spark, job, tasks).collect():
            yield SliceResult.from_json(row["result"].encode())

    def close(self) -> None:
        """Let go of the installation, and end Spark."""
        self._work.close()
        super().close()
