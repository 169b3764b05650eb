"""Runs two schedulers and eight workers of one installation in separate processes, for the tests of stages on a server.

A folder of claims and a queue replace Airflow's database: each run has one scheduler, and each task one worker.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from eventbridge.delivery.push import push
from eventbridge.model.chunk import SLOW_LANE_POOL
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.deliver import next_due_at
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.retry.plan import plan_retries
from eventbridge.pipeline.route.stage import route
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.policy.chunking import PoolSlots
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime

SCHEDULERS: Final = 2
WORKERS: Final = 8

_FORK: Final = multiprocessing.get_context("fork")
_PATIENCE_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.05
_PLAN_SECONDS: Final = 0.3  # how often a scheduler plans, unless one of its runs ends earlier
_LANES: Final = {SLOW_LANE_POOL: PoolSlots(WORKERS, WORKERS)}


@dataclass(frozen=True)
class Task:
    """One stage of a batch for a worker to run; only a push has a `chunk_id`."""

    scheduler: int
    stage: str
    batch_id: str
    chunk_id: int = -1


Timeline = Iterator[Sequence[Task]]

STAGES: Final[dict[str, Callable[[Runtime, Task], Any]]] = {
    "buffer": lambda runtime, task: buffer(runtime, task.batch_id),
    "route": lambda runtime, task: route(runtime, task.batch_id, InProcessRouter(runtime.store)),
    "push": lambda runtime, task: push(runtime, task.batch_id, task.chunk_id),
    "write_dead_letters": lambda runtime, task: write_dead_letters(runtime, task.batch_id),
    "schedule_retries": lambda runtime, task: schedule_retries(runtime, task.batch_id),
    "commit": lambda runtime, task: commit(runtime, task.batch_id),
}


class Crowd:
    """The processes, which start at the same moment and end once no runner has due work."""

    def __init__(self, site: Any, settings: Mapping[str, object], runners: Sequence[str], claims: Path) -> None:
        self._site = site
        self._settings = settings
        self._runners = runners
        self._claims = claims
        self._gate = _FORK.Barrier(SCHEDULERS + WORKERS)
        self._tasks: Any = _FORK.Queue()
        self._responses: list[Any] = [_FORK.Queue() for _ in range(SCHEDULERS)]
        self._results: Any = _FORK.Queue()

    def run(self) -> tuple[Counter[int], Counter[str]]:
        """Return how many batches each scheduler ran, and how often each stage ran; raises the first error."""
        self._claims.mkdir()
        children = [_FORK.Process(target=self._live, args=(self._schedule, me)) for me in range(SCHEDULERS)]
        children += [_FORK.Process(target=self._live, args=(self._work, None)) for _ in range(WORKERS)]
        for child in children:
            child.start()
        try:
            ran = Counter(dict(self._hear() for _ in range(SCHEDULERS)))
            for _ in range(WORKERS):
                self._tasks.put(None)
            stages: Counter[str] = Counter()
            for _ in range(WORKERS):
                stages += self._hear()
        finally:
            for child in children:
                child.join(1.0)
                child.kill()
                child.join()
        return ran, stages

    def _hear(self) -> Any:
        found = self._results.get(timeout=_PATIENCE_SECONDS)
        if isinstance(found, str):
            raise AssertionError(found)
        return found

    def _live(self, what: Callable[[Runtime, Any], Any], me: int | None) -> None:
        """Run in a child with its own runtime, and report the result."""
        try:
            runtime = self._site.reopen(**self._settings)
            runtime.ledger.batches.find()
            self._gate.wait(_PATIENCE_SECONDS)
            self._results.put(what(runtime, me))
        except BaseException as error:
            self._results.put(f"{what.__name__}: {error!r}")
        finally:
            self._results.close()
            self._results.join_thread()
            os._exit(0)  # only the parent may run the exit handlers of pytest and its fixtures

    def _work(self, runtime: Runtime, _: None) -> Counter[str]:
        ran: Counter[str] = Counter()
        while (task := self._tasks.get()) is not None:
            STAGES[task.stage](runtime, task)
            ran[task.stage] += 1
            self._responses[task.scheduler].put(task)
        return ran

    def _schedule(self, runtime: Runtime, me: int) -> tuple[int, int]:
        """Plan for every runner without a run in this scheduler, and hand out the tasks of this scheduler's runs."""
        runs: dict[tuple[str, str], tuple[Timeline, set[Task]]] = {}
        count, plan_at = 0, 0.0
        while True:
            if time.monotonic() >= plan_at:
                for runner in self._runners:
                    for kind, batch_id in self._planned(
                        runtime, runner, [kind for name, kind in runs if name == runner]
                    ):
                        runs[runner, kind] = (_timeline(runtime, me, kind, batch_id), set())
                        count += 1
                plan_at = time.monotonic() + _PLAN_SECONDS
            for key, (timeline, waiting) in list(runs.items()):
                if not waiting and not self._hand_out(timeline, waiting):
                    del runs[key]
                    plan_at = 0.0
            if not runs and self._is_idle(runtime):
                return me, count
            self._take_responses(me, [waiting for _, waiting in runs.values()])

    def _planned(self, runtime: Runtime, runner: str, kinds: Sequence[str]) -> Iterator[tuple[str, str]]:
        if "normal" not in kinds and (batch_id := listen(runtime, runner)) and self._claim(batch_id):
            yield "normal", batch_id
        if "retry" not in kinds and (batch_id := plan_retries(runtime, runner, _LANES).batch_id):
            yield "retry", batch_id

    def _claim(self, batch_id: str) -> bool:
        """Return whether this scheduler claims the run of a batch, because both schedulers find a planned batch."""
        try:
            (self._claims / batch_id).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _hand_out(self, timeline: Timeline, waiting: set[Task]) -> bool:
        for tasks in timeline:
            waiting.update(tasks)
            for task in tasks:
                self._tasks.put(task)
            if tasks:
                return True
        return False

    def _take_responses(self, me: int, runs: Sequence[set[Task]]) -> None:
        try:
            task = self._responses[me].get(timeout=_POLL_SECONDS)
            while True:
                for waiting in runs:
                    waiting.discard(task)
                task = self._responses[me].get_nowait()
        except queue.Empty:
            pass

    def _is_idle(self, runtime: Runtime) -> bool:
        ledger = runtime.ledger
        return all(
            ledger.batches.unfinished(runner) is None
            and listen(runtime, runner) is None
            and not next_due_at(runtime, runner)
            for runner in self._runners
        )


def _timeline(runtime: Runtime, me: int, kind: str, batch_id: str) -> Timeline:
    if kind == "normal":
        yield [Task(me, "buffer", batch_id)]
        yield [Task(me, "route", batch_id)]
    chunks = [chunk for chunk in runtime.ledger.chunks.list_for_batch(batch_id) if chunk.map_index is not None]
    yield [Task(me, "push", batch_id, chunk.chunk_id) for chunk in chunks]
    for stage in ("write_dead_letters", "schedule_retries", "commit"):
        yield [Task(me, stage, batch_id)]
