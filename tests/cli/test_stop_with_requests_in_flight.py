"""SIGTERM while a slow target has requests: the process listens for the responses, and nothing is sent twice."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from demo.receiver import Receiver

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.runtime.open import open_runtime
from eventbridge.store.parquet import read_table

MODES = {
    "streaming": ("deliver", "--runner", "orders", "--streaming"),
    "batch": ("deliver", "--runner", "orders", "--until-idle", "--spark", "sc://127.0.0.1:1"),
}
EVENTS = 40
IN_FLIGHT = 16
RULE = """
  slow:
    bus: orders
    pattern: {{type: [order.placed]}}
    targets:
      crm: {{type: http, url: "{url}", allow_http: true, max_in_flight: {in_flight}, timeout: {timeout}}}
"""


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    """A server that the target sends to."""
    with Receiver(tmp_path / "received.jsonl") as started:
        yield started


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("mode", MODES)
def test_a_stop_sends_nothing_twice(
    mode: str, number: signal.Signals, shop: Any, receiver: Receiver, eventbridge: Callable[..., Any]
) -> None:
    """The target responds after 1.5 s: each event comes once, before the stop or after the next start."""
    _make_ready(mode, shop, receiver.url("/delay/1500"), "10s", eventbridge)
    with _delivering(mode, shop, receiver) as process:
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    at_stop = len(receiver.requests())

    assert process.returncode == 128 + number, err
    assert "Traceback" not in err
    assert at_stop == IN_FLIGHT, "nothing was started after the signal"
    assert _attempts(shop) == {("delivered", None, 1): IN_FLIGHT}
    with shop.process(*MODES[mode]) as process:
        receiver.wait_for(EVENTS, 60)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert Counter(Counter(each["webhook_id"] for each in receiver.requests()).values()) == {1: EVENTS}
    assert _attempts(shop) == {("delivered", None, 1): EVENTS}
    assert shop.run_process("audit").code == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_stop_waits_for_a_hanging_target_until_its_time_out(
    mode: str, shop: Any, receiver: Receiver, eventbridge: Callable[..., Any]
) -> None:
    """No longer than that, and the record says that no response came in time."""
    _make_ready(mode, shop, receiver.url("/hang/crm"), "3s", eventbridge)
    with _delivering(mode, shop, receiver) as process:
        took, err = _stopped(process)

    assert process.returncode == 143, err
    assert 2 <= took < 12, "the timeout is 3 s"
    assert len(receiver.requests()) == IN_FLIGHT
    assert _attempts(shop) == {("retry_scheduled", "Timeout", 1): IN_FLIGHT}


@pytest.mark.parametrize("mode", MODES)
def test_a_second_signal_ends_the_wait(
    mode: str, shop: Any, receiver: Receiver, eventbridge: Callable[..., Any]
) -> None:
    """Whether the target took what is in flight is unknown: the record says so, and puts the next attempt off."""
    _make_ready(mode, shop, receiver.url("/hang/crm"), "30s", eventbridge)
    with _delivering(mode, shop, receiver) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        while "stopping" not in (line := process.stderr.readline()):
            assert line, "it ended without a word"
        took, err = _stopped(process)

    assert process.returncode == 143, err
    assert took < 15, "the timeout is 30 s"
    assert len(receiver.requests()) == IN_FLIGHT
    assert _attempts(shop) == {("retry_scheduled", "Interrupted", 1): IN_FLIGHT}


def _make_ready(mode: str, shop: Any, url: str, timeout: str, eventbridge: Callable[..., Any]) -> None:
    """Let events wait for the target: on the bus, or pending, so that batch mode sends them without Spark."""
    shop.write_rules(more=RULE.format(url=url, timeout=timeout, in_flight=IN_FLIGHT))
    assert eventbridge("events", "publish", "orders", shop.orders(*range(EVENTS))).code == 0
    if mode == "batch":
        assert eventbridge("targets", "pause", "slow", "crm").code == 0
        shop.deliver()
        assert eventbridge("targets", "resume", "slow", "crm").code == 0


@contextmanager
def _delivering(mode: str, shop: Any, receiver: Receiver) -> Iterator[subprocess.Popen[str]]:
    """Run the command until the target has as many requests as it may have in flight."""
    with shop.process(*MODES[mode]) as process:
        receiver.wait_for(IN_FLIGHT, 60)
        yield process


def _stopped(process: subprocess.Popen[str]) -> tuple[float, str]:
    """Send SIGTERM; return in how many seconds the process ended, and what it wrote to standard error."""
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    return time.monotonic() - began, err


def _attempts(shop: Any) -> dict[tuple[str, str | None, int], int]:
    """Return outcome, reason and number of the attempts of the target that were recorded as sent."""
    found: Counter[tuple[str, str | None, int]] = Counter()
    runtime = open_runtime(Settings.from_mapping(shop.environ), connections_from_environment({}))
    with closing(runtime):
        for batch in runtime.ledger.batches.find(limit=None):
            for file in runtime.ledger.files.list_for_batch(batch.batch_id, "outcome"):
                for row in read_table(runtime.store, file.path).to_pylist() if file.path else ():
                    if row["target"] == "crm" and row["sent"]:
                        found[row["outcome"], row["reason"], row["attempt"]] += 1
    return dict(found)
