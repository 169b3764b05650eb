"""The overview shows a disk that is almost full and the failures of the last quality check, with what to do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from api.server import Installation, Server

from eventbridge.model.quality import Measure, QualityCheck, QualityRecord, Subject
from eventbridge.policy.operational_event import quality_check_event
from eventbridge.quality.record import write_record

HOUR = datetime(2026, 3, 1, 9, tzinfo=UTC)
FAILURES = (
    Measure(Subject("bus", "orders"), "events", 2, at_least=40, at_most=90),
    Measure(Subject("target", "all-orders", "archive"), "dead_letter_rate", 0.5, at_most=0.01),
)


@pytest.fixture(scope="module")
def overview(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The overview of an installation with a full disk and a failed quality check, as an operator sees it."""
    folder = tmp_path_factory.mktemp("findings")
    least = shutil.disk_usage(folder).free * 3 // 4
    made = Installation(folder, EVENTBRIDGE_DISK_MIN_FREE_SIZE=str(least), EVENTBRIDGE_DISK_RESUME_FREE_SIZE=str(least))
    with made.opened() as runtime:
        record = QualityRecord(HOUR, HOUR, 1, 0, FAILURES, FAILURES, "")
        write_record(runtime, "quality/check.json", record)
        check = QualityCheck(HOUR, HOUR, 2, 2, "quality/check.json")
        assert runtime.ledger.quality.record_check(check, {}, quality_check_event(record))
    with Server(made) as running, running.client() as browser:
        browser.post("/page/login", data={"token": made.token("operator", "read", "operate")})
        yield browser.get("/page").text


def test_failed_measures_are_shown_with_their_pages(overview: str) -> None:
    """Each has its value, what was expected, and a link to the page of its bus or target."""
    assert "events was 2, expected at least 40 and at most 90" in overview
    assert "dead_letter_rate was 0.5, expected at most 0.01" in overview
    assert '<a class="button" href="/page/buses">Show</a>' in overview
    assert '<a class="button" href="/page/targets/all-orders/archive">Show</a>' in overview


def test_a_disk_that_is_almost_full_is_shown_with_the_command_that_frees_space(overview: str) -> None:
    """It has less than twice the free space at which no batch is planned."""
    assert "Disk: free space" in overview
    assert "GiB free; no batch is planned below" in overview
    assert "<code>eventbridge maintain</code>" in overview
