from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from eventbridge.errors import SparkError
from eventbridge.spark.server import SparkConnectServer, archive_classes, warm_up
from eventbridge.spark.session import redact_address


def test_a_server_ends_with_its_workers() -> None:
    """Nothing of it remains: no JVM, no Python worker, no folder. Its classes came from the archive."""
    archive_classes()
    with SparkConnectServer(master="local[1]") as server:
        family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        folder = server.log.parent
        assert len(family) > 1
        assert any(re.fullmatch(r"spark-.*\.jsa", Path(each.path).name) for each in family[0].memory_maps())
        assert folder.exists()
        listening = {each.laddr.ip for each in psutil.Process(server.pid).net_connections() if each.status == "LISTEN"}

    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []
    assert not folder.exists()
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}


def test_a_server_ends_with_a_process_that_was_killed(tmp_path: Path) -> None:
    """If the starter of a server is killed, nothing of the server keeps running."""
    with _starter(tmp_path) as (starter, server, _):
        family = [psutil.Process(server), *psutil.Process(server).children(recursive=True)]
        starter.kill()

        _, alive = psutil.wait_procs(family, timeout=30)

    assert alive == []


def test_a_server_that_ignores_sigterm_ends_with_a_process_that_was_killed() -> None:
    """Also if that process was killed while it waited for the server's end."""
    code = """
import subprocess, sys, time
from eventbridge.spark.child_guard import start_tethered
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
process = start_tethered([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
process.stdout.readline()
print(process.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        group = int(starter.stdout.readline())
        deaf = psutil.Process(group)
        os.killpg(group, signal.SIGTERM)
        starter.kill()

        _, alive = psutil.wait_procs([deaf], timeout=30)

    left = [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]  # ended, and not yet buried
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    assert left == []


def test_a_server_outlives_its_starter_if_it_is_to(tmp_path: Path) -> None:
    """An environment that is to keep running keeps its server."""
    with _starter(tmp_path, "outlives=True") as (starter, _, url):
        starter.kill()
        starter.wait()

        warm_up(url)


@contextmanager
def _starter(folder: Path, option: str = "") -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """A process to be killed that has started a server, the server's process id and its URL."""
    code = f"""
import sys, time
from pathlib import Path
from eventbridge.spark.server import SparkConnectServer
with SparkConnectServer(Path(sys.argv[1]), master="local[1]", {option}) as server:
    print(server.pid, server.url, flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        server, url = starter.stdout.readline().split()
        try:
            yield starter, int(server), url
        finally:
            starter.kill()
            with suppress(ProcessLookupError):
                os.killpg(int(server), signal.SIGKILL)


def test_a_server_that_ends_at_once_says_why(tmp_path: Path) -> None:
    """A server that cannot start is an error with the reason and the path of its log, without a wait."""
    server = SparkConnectServer(tmp_path, master="nowhere")

    with pytest.raises(
        SparkError, match=rf"ended while it was starting: .* Master must .*{tmp_path}/spark-connect\.log"
    ):
        server.start()


def test_a_server_whose_folder_cannot_be_written_says_which_folder() -> None:
    """The error names the folder and the remedy, not only the system's message."""
    with pytest.raises(SparkError, match=r"its folder /proc/spark cannot be written: .*\. Free space there"):
        SparkConnectServer(Path("/proc/spark")).start()


def test_a_server_that_is_not_running_has_no_process() -> None:
    """Reading the process id of a server that was never started is an error."""
    with pytest.raises(SparkError, match="not running"):
        _ = SparkConnectServer().pid


def test_a_server_that_was_stopped_before_it_started_is_never_started(tmp_path: Path) -> None:
    """An interrupt that ends the services while another thread starts Spark leaves no server behind."""
    server = SparkConnectServer(tmp_path)
    server.stop()

    with pytest.raises(SparkError, match="was stopped"):
        server.start()
    assert list(tmp_path.iterdir()) == []


def test_warming_up_an_unreachable_server_is_an_error() -> None:
    """If nothing listens, the error of a warm-up names the address."""
    url = SparkConnectServer().url

    with pytest.raises(SparkError, match=f"Spark at {redact_address(url)} does not respond"):
        warm_up(url)
