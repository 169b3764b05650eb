"""Fixtures of the stage tests: a runtime of real parts in a temporary folder, and a death at every fault point."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from demo.receiver import ADDRESSES
from pipeline.budgeted import BudgetedSite
from pipeline.modes import MODE, ONLY_IN_BATCH_MODE, STREAMING_RUNS, why_left_out

from eventbridge import fault_points
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.model.partition import Partition
from eventbridge.pipeline.route import stage as route_module
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.embedded.bus import EmbeddedBus

RULES = """
buses:
  orders:
    source: {type: embedded, topics: [placed], partitions: 2, start_at: earliest}
rules:
  big:
    bus: orders
    pattern: {type: [order.placed], data: {amount: [{numeric: [">", 100]}]}}
    priority: high
    targets:
      crm: {type: file, path: /tmp/never-written/crm.jsonl}
      note:
        type: file
        path: /tmp/never-written/note.jsonl
        transform: {form: TEMPLATE, value: {id: $.data.id}, template: '{"order": "${id}"}', missing: error}
  everything:
    bus: orders
    pattern: {}
    targets:
      archive: {type: file, path: /tmp/never-written/archive.jsonl}
  nothing:
    bus: orders
    pattern: {type: [order.lost]}
    targets:
      archive: {type: file, path: /tmp/never-written/nothing.jsonl}
  sleeping:
    bus: orders
    enabled: false
    pattern: {}
    targets:
      archive: {type: file, path: /tmp/never-written/sleeping.jsonl}
"""


#: Points at which a death leaves the same state as at the previous point; a broker may know of requests to it.
_READS = fault_points.READS - {"bus.read"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In streaming mode, leave out tests of batch mode only; fail if that table names a test that does not exist."""
    tests = {item.nodeid.rpartition("pipeline/")[2]: item for item in items if "tests/pipeline/" in str(item.path)}
    names = {test.partition("[")[0] for test in tests} | {test.partition("::")[0] for test in tests}
    files = {name.partition("::")[0] for name in names}
    unknown = [name for name in ONLY_IN_BATCH_MODE if name.partition("::")[0] in files and name not in names]
    if unknown and not config.option.keyword and not any("::" in each for each in config.args):
        raise pytest.UsageError(f"tests/pipeline/modes.py names tests that do not exist: {unknown}")
    if MODE == "streaming":
        STREAMING_RUNS.left_out.update({test: why for test in tests if (why := why_left_out(test)) is not None})
        left = {tests[test] for test in STREAMING_RUNS.left_out}
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Record whether a test ran a streaming task."""
    before = STREAMING_RUNS.streaming_tasks
    yield
    if STREAMING_RUNS.streaming_tasks > before:
        STREAMING_RUNS.with_streaming_tasks += 1
    else:
        STREAMING_RUNS.without.append(item.nodeid.rpartition("pipeline/")[2])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """In streaming mode, report how many tests ran streaming tasks, and which were left out, with the reason."""
    if MODE == "streaming":
        counted = Counter(STREAMING_RUNS.left_out.values())
        terminalreporter.section("streaming mode")
        terminalreporter.line(
            f"{STREAMING_RUNS.with_streaming_tasks} tests delivered in {STREAMING_RUNS.streaming_tasks} streaming tasks"
        )
        terminalreporter.line(f"{len(STREAMING_RUNS.without)} ran no streaming task:")
        for file, number in sorted(Counter(test.partition("::")[0] for test in STREAMING_RUNS.without).items()):
            terminalreporter.line(f"  {file}: {number}")
        for why, number in counted.items():
            terminalreporter.line(f"{number} left out: {why}")


class Killed(BaseException):
    """The process died here; no error handler sees it."""


@contextmanager
def dying_at(point: str, fatal: int) -> Iterator[list[str]]:
    """Kill the process when it reaches a point for the n-th time; a point that is never reached kills nothing."""
    reached = 0
    died: list[str] = []

    def hook(found: str) -> None:
        nonlocal reached
        reached += found == point
        if reached == fatal:
            raise Killed(found)

    fault_points.install(hook)
    try:
        yield died
    finally:
        fault_points.install(None)


@dataclass
class Clock:
    """A clock that moves only when a test advances it."""

    now: datetime = field(default_factory=lambda: datetime(2026, 3, 1, 12, 0, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += timedelta(seconds=seconds)


@dataclass
class Site:
    """An installation in a folder, which can be opened, copied, and reopened as in a new process."""

    folder: Path
    clock: Clock
    environ: dict[str, str]
    works: list[Runtime] = field(default_factory=list)

    @property
    def runtime(self) -> Runtime:
        """The runtime that was opened last."""
        return self.works[-1] if self.works else self.reopen()

    def reopen(self, **changes: Any) -> Runtime:
        """Open the same installation again, with settings changed by field name."""
        mapping = self.environ | {
            "EVENTBRIDGE_HOME": str(self.folder),
            "EVENTBRIDGE_FILE_TARGET_FOLDERS": f"{self.folder}:{self.folder.parent}",
            "EVENTBRIDGE_RULES_FOLDER": str(self.folder / "rules"),
        }
        settings = Settings.from_mapping(mapping | {f"EVENTBRIDGE_{k.upper()}": str(v) for k, v in changes.items()})
        self.works.append(open_runtime(settings, connections_from_environment(mapping), self.clock))
        return self.works[-1]

    def copy(self, folder: Path) -> Site:
        """Return a copy of the installation in another folder."""
        self.close()
        shutil.copytree(self.folder, folder)
        return Site(folder, self.clock, self.environ)

    def write_rules(self, text: str) -> None:
        """Replace the rule files by one with this content."""
        (self.folder / "rules").mkdir(parents=True, exist_ok=True)
        (self.folder / "rules" / "rules.yaml").write_text(text)

    def bus(self, name: str = "orders", topics: tuple[str, ...] = ("placed",), partitions: int = 2) -> EmbeddedBus:
        """Open one of its embedded buses; the caller closes it."""
        (self.folder / "bus").mkdir(parents=True, exist_ok=True)
        return EmbeddedBus(self.folder / "bus", name, topics=topics, partitions=partitions, clock=self.clock)

    def publish(self, *bodies: bytes, topic: str = "placed", key: str | None = None) -> list[tuple[Partition, int]]:
        """Publish messages to the bus `orders`; messages without a key alternate between its two partitions."""
        with self.bus(topics=(topic,)) as bus:
            return bus.publish([(body, key) for body in bodies])

    def close(self) -> None:
        """Close every runtime that was opened here."""
        while self.works:
            self.works.pop().close()


T = TypeVar("T")


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still at noon of 1 March 2026."""
    return Clock()


@pytest.fixture
def site(tmp_path: Path, clock: Clock) -> Iterator[Site]:
    """An installation: the bus `orders` (two partitions, start_at earliest), and four rules of the runner `orders`."""
    site = Site(
        tmp_path / "home", clock, {"EVENTBRIDGE_DISK_MIN_FREE_SIZE": "0", "EVENTBRIDGE_ALLOW_ADDRESSES": ADDRESSES}
    )
    site.write_rules(RULES)
    yield site
    site.close()


@pytest.fixture
def runtime(site: Site) -> Runtime:
    """The runtime of `site`."""
    return site.runtime


@pytest.fixture
def order() -> Callable[..., bytes]:
    """Make the body of an order's event, from its id, its amount and further attributes."""

    def make(event_id: str | int, amount: float = 10, **attributes: object) -> bytes:
        event = {"specversion": "1.0", "id": str(event_id), "source": "/shop", "type": "order.placed"}
        return json.dumps(event | {"data": {"id": str(event_id), "amount": amount}} | attributes).encode()

    return make


@pytest.fixture
def dying_everywhere(tmp_path: Path) -> Callable[..., Iterator[Site]]:
    """Let a stage die at each point that it reaches, and yield each wreck for a second try.

    With `every`, it dies at one in that many points, because the crash matrix stops the same calls. It does not die at
    points that only read the ledger or the store, because nothing changed since the previous point. Each wreck is a
    copy of the site before the stage. The last wreck is the first one whose stage was not stopped.
    """

    def wrecks(site: Site, stage: Callable[[Runtime], Any], every: int = 1) -> Iterator[Site]:
        for fatal in range(1, 10_000, every):
            wreck = site.copy(tmp_path / f"wreck-{fatal}")
            died = _dies(wreck, stage, fatal)
            wreck.close()
            if not died:
                assert fatal > 5, "the stage reached hardly any point: the seam is not where the stage is"
                return
            yield wreck
            wreck.close()
            shutil.rmtree(wreck.folder)

    return wrecks


def _dies(site: Site, stage: Callable[[Runtime], Any], fatal: int) -> bool:
    reached = 0

    def hook(point: str) -> None:
        nonlocal reached
        reached += point not in _READS
        if reached == fatal:
            raise Killed(point)

    runtime = site.reopen()
    fault_points.install(hook)
    try:
        stage(runtime)
    except Killed:
        return True
    finally:
        fault_points.install(None)
    return False


@pytest.fixture
def settle_by_ledger() -> Callable[[Runtime, str], None]:
    """Move a planned batch through all its states in the ledger, as if no event had matched."""

    def settle(runtime: Runtime, batch_id: str) -> None:
        ledger = runtime.ledger
        batch = ledger.batches.get(batch_id)
        ledger.batches.move(batch_id, "planned", "buffered")
        ledger.chunks.publish(batch_id, ledger.now() + timedelta(seconds=60), [])
        ledger.settlement.begin(batch_id)
        assert ledger.settlement.commit(batch_id, batch.runner, ledger.batches.ranges(batch_id), ledger.now(), "000000")

    return settle


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut slices of two rows, so that a batch of a few events has several."""
    monkeypatch.setattr(route_module, "ROW_GROUP_ROWS", 2)


@pytest.fixture
def budgeted_site(site: Site) -> BudgetedSite:
    """An installation with one cheap and one budgeted rule."""
    return BudgetedSite(site)
