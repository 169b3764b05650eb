"""In streaming mode a file target stays open while events arrive, and is synced before a delivery counts."""

from __future__ import annotations

import os
from pathlib import Path

from pipeline.delivering import RunningClock, Sending, segment_rows
from pipeline.streaming_tasks import a_streaming_task, until

from eventbridge.repair.audit import audit
from eventbridge.streaming.lease import Bounds


def test_a_file_is_kept_open_while_events_come(sending: Sending, tmp_path: Path) -> None:
    """Each is a line once it is synced; when nothing has come for a while the file is closed."""
    lines = tmp_path / "lines.jsonl"
    sending.rules(crm=f"{{type: file, path: {lines}}}")
    with a_streaming_task(sending):
        for number in range(1, 11):
            sending.publish(1)
            until(lambda number=number: len(lines.read_text().splitlines() if lines.exists() else []) == number)
            assert is_open(lines)
        until(lambda: not is_open(lines))
        sending.publish(1)
        until(lambda: len(lines.read_text().splitlines()) == 11)

    assert len(set(lines.read_text().splitlines())) == 11
    assert audit(sending.runtime).differences == ()


def test_a_file_that_fails_while_events_come_is_tried_again(
    sending: Sending, tmp_path: Path, clock: RunningClock
) -> None:
    """What could not be written is pending, and written once the file can be; nothing of it is lost."""
    lines = tmp_path / "lines.jsonl"
    policy = "{policy: custom, max_retries: 3, initial_delay: 1h, multiplier: 1, max_delay: 1h}"
    sending.rules(crm=f"{{type: file, path: {lines}, retry: {policy}}}")
    with a_streaming_task(sending, bounds=Bounds(makes_retries=False)):
        sending.publish(3)
        until(lambda: len(lines.read_text().splitlines() if lines.exists() else []) == 3)
        lines.rename(tmp_path / "before.jsonl")
        lines.mkdir()
        sending.publish(2)
        until(lambda: failed(sending))
        lines.rmdir()
        sending.publish(2)
        until(lambda: len(lines.read_text().splitlines() if lines.exists() else []) == 2)
    clock.advance(2 * 3600)  # an hour, and its jitter
    sending.retry()

    written = [*(tmp_path / "before.jsonl").read_text().splitlines(), *lines.read_text().splitlines()]
    assert len(written) == len(set(written)) == 7
    assert audit(sending.runtime).differences == ()


def is_open(path: Path) -> bool:
    """Say whether this process has a file open."""
    return str(path) in {os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()}


def failed(sending: Sending) -> bool:
    """Say whether two deliveries failed, as segments show."""
    runtime = sending.runtime
    rows = [row for batch in runtime.ledger.batches.find() for row in segment_rows(runtime, batch.batch_id)]
    return sum(row["error_class"] == "FileError" for row in rows) == 2
