from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from eventbridge.errors import SparkError
from eventbridge.spark.server import SparkConnectServer, warm_up


def test_a_server_ends_with_its_workers() -> None:
    """When the context is left nothing of the server remains: no JVM, no Python worker, no folder of its own."""
    with SparkConnectServer(master="local[1]") as server:
        family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        folder = server.log.parent
        assert len(family) > 1
        assert folder.exists()
        listening = {each.laddr.ip for each in psutil.Process(server.pid).net_connections() if each.status == "LISTEN"}

    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []
    assert not folder.exists()
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}


def test_a_server_that_ends_at_once_says_why(tmp_path: Path) -> None:
    """A server that cannot start is an error with the reason and the place of its log, without waiting."""
    server = SparkConnectServer(tmp_path, master="nowhere")

    with pytest.raises(SparkError, match=rf"ended at once: .* Master must .*{tmp_path}/spark-connect\.log"):
        server.start()


def test_a_server_that_is_not_running_has_no_process() -> None:
    """Asking for the process of a server that was never started is told."""
    with pytest.raises(SparkError, match="not running"):
        _ = SparkConnectServer().pid


def test_a_server_that_was_stopped_before_it_started_is_never_started(tmp_path: Path) -> None:
    """An interrupt that ends the services while another thread starts Spark leaves no server behind."""
    server = SparkConnectServer(tmp_path)
    server.stop()

    with pytest.raises(SparkError, match="was stopped"):
        server.start()
    assert list(tmp_path.iterdir()) == []


def test_warming_up_nobody_is_an_error() -> None:
    """A warm-up of an address where nobody listens says which."""
    url = SparkConnectServer().url

    with pytest.raises(SparkError, match=f"Spark at {url} does not answer"):
        warm_up(url)
