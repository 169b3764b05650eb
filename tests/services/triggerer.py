"""Runs Airflow's triggerer on the database of an `AirflowServer`, and kills it where a test says.

The triggerer's modules are imported once; each start forks that process, because an import of Airflow takes seconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

#: A line of the form `POINT NUMBER` starts a triggerer that dies when a fault point is reached for that time; an empty
#: line starts one that lives. It writes the pid of the triggerer's process group, and then its end.
_HOST = """
import os, signal, sys
from datetime import timedelta
from airflow.jobs.job import Job, run_job
from airflow.jobs.triggerer_job_runner import TriggererJobRunner
from airflow.models.trigger import Trigger
from airflow import settings
from eventbridge import fault_points
from eventbridge.airflow import bus_reader
bus_reader._SETTLING = timedelta(seconds=0.5)
bus_reader._BEGIN_SECONDS = 0.2
counts = {}

def dies(point, number):
    def reach(reached):
        if reached == point:
            counts[point] = counts.get(point, 0) + 1
            if counts[point] == number:
                os.killpg(0, signal.SIGKILL)
    return reach

def run(line):
    os.setpgid(0, 0)
    settings.reconfigure_orm() if hasattr(settings, "reconfigure_orm") else settings.configure_orm()
    if line:
        point, number = line.split()
        reach = dies(point, int(number))
        fault_points.install(reach)
        submit = Trigger.submit_event
        def submit_event(*given, **named):
            reach("airflow.record")
            submit(*given, **named)
            reach("airflow.record.done")
        Trigger.submit_event = submit_event
    job = Job()
    run_job(job=job, execute_callable=TriggererJobRunner(job=job, capacity=1000)._execute)

print("ready", flush=True)
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        run(line.strip())
        os._exit(0)
    try:
        os.setpgid(pid, pid)
    except OSError:
        pass
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print("ended", flush=True)
"""


class Triggerers:
    """Starts triggerers one after the other."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self._environment = {**environment, "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "1"}
        self._log = log
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._pid = 0

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._host = subprocess.Popen(
                [sys.executable, "-c", _HOST],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._lines.get(timeout=180) == "ready", self.log()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        assert self._host.stdin is not None
        self._host.stdin.close()  # the host ends
        self._host.wait(timeout=60)
        self._reader.join()

    @property
    def is_running(self) -> bool:
        """Whether the triggerer that was started last has not died."""
        with suppress(Empty):
            assert self._lines.get_nowait() == "ended", self.log()
            self._pid = 0
        return self._pid != 0

    def start(self, dies_at: str = "", number: int = 1) -> None:
        """Start a triggerer; with `dies_at`, it is killed when it reaches that fault point for the given time."""
        assert self._host.stdin is not None
        self._host.stdin.write(f"{dies_at} {number}\n" if dies_at else "\n")
        self._host.stdin.flush()
        self._pid = int(self._lines.get(timeout=60))

    def kill(self) -> None:
        """Kill the triggerer with all its processes."""
        if self.is_running:
            os.killpg(self._pid, signal.SIGKILL)
            assert self._lines.get(timeout=60) == "ended", self.log()
            self._pid = 0

    def log(self) -> str:
        """Return the end of the log of all triggerers."""
        return self._log.read_text()[-5_000:]

    def _read(self) -> None:
        assert self._host.stdout is not None
        with self._host.stdout as lines:
            for line in lines:
                if (text := line.strip()) in ("ready", "ended") or text.isdecimal():
                    self._lines.put(text)
