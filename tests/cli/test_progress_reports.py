"""Long work reports how far it is to its caller: counts that rise, and the total where it is known."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from eventbridge.cli.replays import ReplayOptions
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.control.backtest import BacktestRequest, backtest_rules, diff_rules
from eventbridge.control.consecutive_batches import deliver_redrive, deliver_replay
from eventbridge.control.publish import publish_lines
from eventbridge.dead_letters.redrive_plan import begin_redrive
from eventbridge.dead_letters.selection import WrittenSelection
from eventbridge.ledger.copy import copy_ledger
from eventbridge.ledger.ledger import Ledger
from eventbridge.repair.audit import audit
from eventbridge.repair.repair import repair_batch
from eventbridge.replay.plan import begin_replay
from eventbridge.replay.survey import survey
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.upkeep.maintain import maintain

Reports = list[tuple[int, int | None]]
#: How many events the shop has landed: 4 orders, and 2 lines that are no events.
LANDED = 6


@pytest.fixture
def reports() -> Reports:
    """What the work has reported."""
    return []


@pytest.fixture
def runtime(delivered: Any) -> Iterator[Runtime]:
    """The runtime of a shop after a delivery."""
    opened = open_runtime(Settings.from_mapping(delivered.environ), connections_from_environment(delivered.environ))
    yield opened
    opened.close()


def test_a_publish_reports_each_transaction(runtime: Runtime, reports: Reports) -> None:
    """A transaction has a thousand events; they are reported once they are durable."""
    lines = [(number, b"{}") for number in range(2_500)]

    publish_lines(runtime, "orders", None, lines, lambda *report: reports.append(report))

    assert reports == [(1_000, None), (2_000, None), (2_500, None)]


def test_an_audit_reports_each_batch(runtime: Runtime, reports: Reports) -> None:
    """Before each batch: how many are done, of how many."""
    found = audit(runtime, progress=lambda *report: reports.append(report))

    assert reports == [(number, found.batches) for number in range(found.batches)]


def test_a_repair_reports_each_file_that_it_checks(runtime: Runtime, reports: Reports) -> None:
    """Then the total is unknown, because nobody knows how long the repair takes."""
    (batch, *_) = runtime.ledger.batches.find(limit=None)

    router = InProcessRouter(runtime.store)
    repair_batch(runtime, batch.batch_id, router, dry_run=True, progress=lambda *report: reports.append(report))

    files = len(reports) - 1
    assert files >= 3
    assert reports == [*((number, files) for number in range(1, files + 1)), (files, None)]


def test_maintenance_reports_what_it_has_removed(runtime: Runtime, reports: Reports, delivered: Any) -> None:
    """Files, rows and messages together; the count never falls."""
    late = Settings.from_mapping(delivered.environ)
    opened = open_runtime(late, {}, clock=lambda: runtime.clock() + timedelta(days=900))
    try:
        done = maintain(opened, progress=lambda *report: reports.append(report))
    finally:
        opened.close()

    counts = [count for count, _ in reports]
    assert counts == sorted(counts)
    assert counts[-1] == done.files + done.rows + done.messages.total() > 0


@pytest.mark.parametrize("compared", [False, True], ids=["backtest", "diff"])
def test_a_backtest_reports_each_part_of_the_archive(compared: bool, runtime: Runtime, reports: Reports) -> None:
    """The archived events that were processed, of those in the range."""
    router, request = InProcessRouter(runtime.store), BacktestRequest("1h")
    if compared:
        diff_rules(runtime, *2 * ["all-orders"], request, router, progress=lambda *report: reports.append(report))
    else:
        backtest_rules(runtime, "all-orders", request, router, progress=lambda *report: reports.append(report))

    assert reports[-1] == (LANDED, LANDED)
    assert reports == sorted(reports)


def replay_of(runtime: Runtime) -> Any:
    """Return the request for a replay of everything to one target."""
    options = ReplayOptions(since="1h", targets=["archive"])
    return options.written_request("orders").read(runtime.ledger.now(), runtime.rule_set())


def test_a_replay_reports_the_events_that_it_has_read(runtime: Runtime, reports: Reports) -> None:
    """Of all that it will read, so that the last report is the whole."""
    begun = begin_replay(runtime, replay_of(runtime), "a test")

    deliver_replay(
        runtime, begun.replay_id, InProcessRouter(runtime.store), None, lambda *report: reports.append(report)
    )

    assert reports[-1] == (LANDED, LANDED)


def test_a_search_for_a_replay_reports_the_events_that_it_has_read(runtime: Runtime, reports: Reports) -> None:
    """The same total as the replay itself has."""
    survey(runtime, replay_of(runtime), progress=lambda *report: reports.append(report))

    assert reports[-1] == (LANDED, LANDED)


def test_a_redrive_reports_the_dead_letters_that_it_has_taken(runtime: Runtime, reports: Reports) -> None:
    """After each batch; how many are left is not known without reading them all."""
    selection = WrittenSelection(target="bad").read(runtime.clock())
    begun = begin_redrive(runtime, selection, "a test", rate=None, retransform=False, again=False)

    deliver_redrive(
        runtime, begun.redrive_id, InProcessRouter(runtime.store), None, lambda *report: reports.append(report)
    )

    assert reports == [(4, None)]


def test_a_copy_of_a_ledger_reports_its_rows(delivered: Any, reports: Reports, tmp_path: Path) -> None:
    """Of all rows of all tables."""
    urls = f"sqlite:///{delivered.environ['EVENTBRIDGE_HOME']}/ledger.sqlite", f"sqlite:///{tmp_path}/copy.sqlite"
    Ledger.migrate(urls[1])

    counts = copy_ledger(*urls, lambda *report: reports.append(report))

    total = sum(counts.values())
    assert reports[-1] == (total, total)
    assert reports == sorted(reports)
    assert len(reports) >= 5
