"""The demo's services start, know each other's addresses, and stop with their children."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from demo import config, services
from demo.config import DemoError, environment, new_config
from demo.ports import is_listening
from demo.services import lower_priority, orphaned_groups, stop_groups

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.errors import LedgerError
from eventbridge.ledger import Ledger
from eventbridge.runtime.open import open_runtime
from eventbridge.store.open import open_store

ROOT = Path(__file__).parents[2]


#: Ignores SIGTERM, has a child that does too, prints the child's process id, and stays.
_STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


def test_services_that_ignore_sigterm_are_killed_with_their_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """First SIGTERM, then SIGKILL for the rest of the process group, including the children."""
    monkeypatch.setattr(services, "_GRACE_SECONDS", 0.4)
    leader = subprocess.Popen(
        [sys.executable, "-c", _STUBBORN], stdout=subprocess.PIPE, start_new_session=True, text=True
    )
    assert leader.stdout is not None
    child = int(leader.stdout.readline())
    leader.stdout.close()
    stop_groups({"stubborn": leader.pid})
    end = time.monotonic() + 10
    while not ended(child):
        assert time.monotonic() < end
        time.sleep(0.01)

    assert leader.poll() is not None or not psutil.pid_exists(leader.pid)


def ended(pid: int) -> bool:
    """Return whether a process has ended, also if it is a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_stopping_an_ended_service_is_harmless() -> None:
    """For example `make down` after a crash, or twice."""
    done = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    done.wait()
    stop_groups({"gone": done.pid})


def test_a_reused_process_id_is_ignored(tmp_path: Path) -> None:
    """`make down` stops only the recorded processes, identified by id and start time."""
    mine = psutil.Process()
    noted = {"mine": [mine.pid, mine.create_time()], "again": [mine.pid, 1.0], "gone": [2**22 - 3, 5.0]}
    (tmp_path / "pids.json").write_text(json.dumps(noted))

    assert orphaned_groups(tmp_path) == {"mine": mine.pid}
    assert orphaned_groups(tmp_path / "nowhere") == {}


def test_the_ledgers_server_requires_the_password_and_stops(tmp_path: Path) -> None:
    """It holds the ledger, refuses a wrong password, and stops with the other services."""
    made = new_config(tmp_path / "demo", ledger="postgresql")
    running = services.Services(made)
    url = environment(made, {})["EVENTBRIDGE_LEDGER_URL"]
    try:
        running._start_postgresql()
        running._make_ledger()

        assert Ledger.open(url).batches.find() == []
        with pytest.raises(LedgerError, match="password"):
            Ledger.open(url.replace(made.password, "guessed"))
    finally:
        running.stop()
    again = services.Services(made)
    try:
        again._start_postgresql()

        assert Ledger.open(url).batches.find() == []  # raises if the tables are missing
    finally:
        again.stop()
    with pytest.raises(LedgerError, match="Connection refused"):
        Ledger.open(url, busy_timeout_seconds=0.1)


@pytest.mark.parametrize("bus", ["kafka", "rocketmq"])
def test_every_process_gets_the_connection_of_a_broker_which_stops_last(tmp_path: Path, bus: str) -> None:
    """BUS=...: the copy of the rules names it, all processes have its connection, and it stops with the other
    services.
    """
    made = new_config(tmp_path / "demo", bus=bus)
    running = services.Services(made)
    given = environment(made, {})
    try:
        running._start_broker()
        running._make_ledger()
        runtime = open_runtime(Settings.from_mapping(given), connections_from_environment(given))
        with closing(runtime), closing(runtime.open_publisher(runtime.rule_set().buses["flights"])) as publisher:
            positions = publisher.publish([(b"{}", None)] * 4)
        running.stop()
        running._start_broker()
        runtime = open_runtime(Settings.from_mapping(given), connections_from_environment(given))
        with closing(runtime), closing(runtime.open_publisher(runtime.rule_set().buses["flights"])) as publisher:
            later = publisher.publish([(b"{}", None)] * 4)
    finally:
        running.stop()

    assert {partition.partition_id for partition, _ in positions} == {0, 1, 2, 3}
    assert {offset for _, offset in later} == {1}  # after what the broker had before
    assert given["AIRFLOW_CONN_DEMO_BUS"] == given["EVENTBRIDGE_CONN_DEMO_BUS"]
    assert "AIRFLOW_CONN_DEMO_BUS" not in environment(new_config(tmp_path / "other"), {})
    assert not any(is_listening(port) for port in made.bus_ports)
    with pytest.raises(DemoError, match="BUS is 'sqs'; it must be embedded, kafka or rocketmq"):
        new_config(tmp_path / "demo", bus="sqs")


def test_the_s3_server_runs_until_it_is_stopped_last(tmp_path: Path) -> None:
    """It has its bucket once it is started, keeps running when the others stop, and can be read."""
    made = new_config(tmp_path / "demo", store="s3")
    running = services.Services(made)
    try:
        running._start_s3()
        settings = config.store_settings(made)
        store = open_store(settings["EVENTBRIDGE_STORE_URI"], connections_from_environment(settings))
        store.put("a/x", b"1")
        running.stop(but=["s3"])

        assert store.get("a/x") == b"1"
        assert "s3" in orphaned_groups(made.folder)
    finally:
        running.stop()

    assert orphaned_groups(made.folder) == {}


def test_a_service_can_get_a_lower_cpu_priority() -> None:
    """The priority of its process is lower, and that of its session if Linux has one."""
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        lower_priority(sleeper.pid)
        autogroup = Path(f"/proc/{sleeper.pid}/autogroup")

        assert psutil.Process(sleeper.pid).nice() == max(10, psutil.Process().nice())
        assert not autogroup.exists() or autogroup.read_text().endswith(" nice 10\n")
    finally:
        sleeper.communicate()


def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    """Ctrl-C while the services start: exit code 130, and every process has ended."""
    code = (
        "import sys; from pathlib import Path; import demo.run as run;"
        f"run.RUN_FOLDER = Path({str(tmp_path / 'demo')!r}); sys.exit(run.main())"
    )
    demo = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, start_new_session=True, env=os.environ)
    pids = tmp_path / "demo" / "pids.json"
    end = time.monotonic() + 120
    while not (pids.exists() and "receiver" in pids.read_text()):
        assert demo.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    noted = Counter(pid for pid, _ in json.loads(pids.read_text()).values())
    os.kill(demo.pid, signal.SIGINT)

    assert demo.wait(60) == 130
    assert orphaned_groups(tmp_path / "demo") == {}
    assert [pid for pid in noted if not ended(pid)] == []
