"""The supervisor of `make up-production` starts services in order, restarts those that die, and stops all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from demo.config import DemoError
from demo.production.compose import services
from demo.production.supervisor import Supervisor

_FILE = """\
services:
  first:
    image: eventbridge:1
    command: [python, -c, "open('{folder}/made', 'w').close()"]
    restart: "no"
  second:
    image: eventbridge:1
    command: [sh, -c, "test -e {folder}/made && echo $$HOSTNAME >> {folder}/began && sleep 600 & wait"]
    restart: unless-stopped
    deploy: {{replicas: 2}}
    depends_on: {{first: {{condition: service_completed_successfully}}}}
    healthcheck: {{test: [CMD, grep, -q, second-1, "{folder}/began"]}}
  third:
    image: eventbridge:1
    command: [{command}]
    restart: unless-stopped
    depends_on: {{second: {{condition: service_healthy}}}}
    healthcheck: {{test: [CMD, "{check}"]}}
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Supervisor]]:
    """Starts three services, the third with a command; stops them after the test."""
    made: list[Supervisor] = []

    def start(command: str = 'sleep, "600"', check: str = "true") -> Supervisor:
        file = tmp_path / "compose.yaml"
        file.write_text(_FILE.format(folder=tmp_path, command=command, check=check))
        made.append(Supervisor.of_services(services({}, file), tmp_path / "run", lambda line: None))
        made[-1].start()
        return made[-1]

    yield start
    for each in made:
        each.stop()


def test_services_start_once_their_dependencies_are_healthy(started: Callable[..., Supervisor], tmp_path: Path) -> None:
    """The second service fails if the first one has not ended before."""
    supervisor = started()

    assert sorted(supervisor.running) == ["first", "second-1", "second-2", "third"]
    assert sorted((tmp_path / "began").read_text().split()) == ["second-1", "second-2"]


def test_a_killed_process_ends_with_its_children_and_is_restarted(started: Callable[..., Supervisor]) -> None:
    """A container does the same."""
    supervisor = started()
    before = supervisor.running["second-1"]
    children = psutil.Process(before.pid).children()
    supervisor.kill("second-1")
    psutil.wait_procs(children, timeout=10)
    while supervisor.running["second-1"] is before:
        supervisor.restart_ended()

    assert children
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
    assert supervisor.running["second-1"].poll() is None
    assert supervisor.running["first"].returncode == 0  # it is expected to end


def test_stopping_leaves_no_process(started: Callable[..., Supervisor]) -> None:
    """Neither the processes nor their children remain."""
    supervisor = started()
    processes = [psutil.Process(supervisor.running[name].pid) for name in ("second-1", "second-2", "third")]
    processes += [child for process in processes for child in process.children()]
    supervisor.stop()

    assert psutil.wait_procs(processes, timeout=10)[1] == []


def test_a_service_that_ends_during_the_start_is_reported_with_its_log(started: Callable[..., Supervisor]) -> None:
    """The start does not wait for it any longer."""
    with pytest.raises(DemoError, match=r"third ended with 3: no such ledger .*third\.log"):
        started('sh, -c, "echo no such ledger; exit 3"', check="false")
