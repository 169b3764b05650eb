"""Delivers flights through the services of docker-compose.yaml, may kill workers and Spark's master, and proves that no
flight is lost."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, Final, Protocol

import httpx
import psutil

from demo.config import ROOT, DemoError
from demo.flights import flight_event, flight_rows
from demo.production.supervisor import Supervisor
from demo.proof import PrintLine, print_result
from demo.settled import unsettled
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.repair.audit import Audit, audit
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime

_BUS: Final = "flights"
_BATCH: Final = 500
_PER_SECOND: Final = 1_000.0
#: On two busy cores, a batch may make no progress for minutes.
_STALL_SECONDS: Final = 600.0
_PRINT_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.3
_CALM_POLL_SECONDS: Final = 1.0


#: The services that are killed, one process each, in this order.
VICTIMS: Final = ("airflow-worker", "spark-master", "spark-worker")
#: The services whose data are audited.
_AUDITED: Final = ("postgresql", "kafka", "s3")


class Proof(Protocol):
    """The expected deliveries of a smoke run."""

    def expect(self, event: Mapping[str, Any]) -> None:
        """Record a published flight."""

    def is_settled(self, runtime: Runtime, published: int) -> bool:
        """Return whether everything that can be delivered is delivered."""

    def differences(self, runtime: Runtime, audited: Audit, print_line: PrintLine) -> list[str]:
        """Print the results of the flights, and return the differences."""


def smoke(
    supervisor: Supervisor, total: int, print_line: PrintLine, proof: Proof, victims: Collection[str] = VICTIMS
) -> int:
    """Return 0 if every flight is accounted for, else 1; raises DemoError if there is no progress.

    One process of each service in `victims` is killed while a batch is open.
    """
    environ = supervisor.environment("eventbridge-api")
    with closing(open_runtime(Settings.from_mapping(environ), connections_from_environment(environ))) as runtime:
        run = _Run(supervisor, runtime, total, print_line, proof, victims)
        run.deliver()
        supervisor.stop(but=_AUDITED)
        return run.prove()


class _Run:
    def __init__(
        self,
        supervisor: Supervisor,
        runtime: Runtime,
        total: int,
        print_line: PrintLine,
        proof: Proof,
        victims: Collection[str],
    ) -> None:
        self._supervisor = supervisor
        self._runtime = runtime
        self._total = total
        self._print_line = print_line
        self._proof = proof
        self._published = 0
        self._error: Exception | None = None
        self._victims = [name for name in VICTIMS if name in victims]

    def deliver(self) -> None:
        """Publish everything and return once it is settled; kill one process of each victim while a batch is open."""
        began = time.monotonic()
        publisher = threading.Thread(target=self._publish, name="publisher", daemon=True)
        publisher.start()
        last, moved, printed = "", time.monotonic(), 0.0
        while True:
            self._supervisor.restart_ended()
            if self._error is not None:
                raise DemoError(f"Publishing failed: {self._error}")
            self._kill_one()
            now = self._progress()
            if now != last:
                last, moved = now, time.monotonic()
            if time.monotonic() - printed >= _PRINT_SECONDS:
                printed = time.monotonic()
                self._print_line(f"  {printed - began:4.0f} s  {now}")
            if not publisher.is_alive() and self._proof.is_settled(self._runtime, self._published):
                break
            if time.monotonic() - moved > _STALL_SECONDS:
                raise DemoError(f"No progress for {_STALL_SECONDS:g} s: {now}; {unsettled(self._runtime)}")
            time.sleep(_POLL_SECONDS if self._victims else _CALM_POLL_SECONDS)
        self._print_line(f"All settled {time.monotonic() - began:.0f} s after the first flight was published.")

    def prove(self) -> int:
        """Compare the reconciliation with the published events, and with the targets."""
        audited = audit(self._runtime)
        problems = self._proof.differences(self._runtime, audited, self._print_line)
        if audited.events["valid"] != self._total:
            problems.append(
                f"{self._total:,} flights were published, but {audited.events['valid']:,} are in the reconciliation"
            )
        if "failed" in (self._supervisor.folder / "logs" / "airflow-clean.log").read_text():
            problems.append("airflow-clean could not clean Airflow's database")
        for kind in self._victims:
            problems.append(f"no {kind} was killed: no batch was open for long enough")
        return print_result(problems, self._print_line)

    def _publish(self) -> None:
        try:
            with httpx.Client(headers={"Authorization": f"Bearer {self._token()}"}, timeout=180) as client:
                url = f"http://{self._supervisor.native.address('eventbridge-api')}:8090/v1/buses/{_BUS}/events"
                rows = islice(flight_rows(), self._total)
                began = time.monotonic()
                while batch := [flight_event(row) for row in islice(rows, _BATCH)]:
                    time.sleep(max(0.0, began + self._published / _PER_SECOND - time.monotonic()))
                    self._send(client, url, batch)
        except Exception as error:
            self._error = error

    def _send(self, client: httpx.Client, url: str, batch: Sequence[dict[str, Any]]) -> None:
        content = json.dumps(batch, separators=(",", ":"))
        response = client.post(url, content=content, headers={"Content-Type": "application/cloudevents-batch+json"})
        if not response.is_success or response.json()["published"] != len(batch):
            raise DemoError(f"{url} responds with {response.status_code}: {response.text[:300]}")
        for event in batch:
            self._proof.expect(event)
        self._published += len(batch)

    def _token(self) -> str:
        command = ["eventbridge", "tokens", "create", "smoke", "--scope", f"publish:{_BUS}"]
        environ = self._supervisor.environment("eventbridge-api")
        made = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False)
        if made.returncode:
            raise DemoError(f"{' '.join(command)} failed: {made.stderr.strip()}")
        return made.stdout.strip().splitlines()[-1]

    def _kill_one(self) -> None:
        """Kill a Celery worker while it runs a task, then Spark's master and a Spark worker while batches are
        routed.
        """
        if not self._victims or not any(b.state != "committed" for b in self._runtime.ledger.batches.find(limit=20)):
            return
        killed = self._kill_celery() if self._victims[0] == "airflow-worker" else self._kill_spark(self._victims[0])
        if killed:
            del self._victims[0]

    def _kill_celery(self) -> bool:
        for name in self._names("airflow-worker"):
            tasks = _descendants(self._supervisor.running[name].pid) - _children(self._supervisor.running[name].pid)
            if tasks:
                self._supervisor.kill(name)
                self._print_line(f"  kill -9 {name}, with {len(tasks)} processes of tasks")
                return True
        return False

    def _kill_spark(self, service: str) -> bool:
        if not any(batch.state == "buffered" for batch in self._runtime.ledger.batches.find(limit=20)):
            return False
        name = self._names(service)[0]
        executors = _children(self._supervisor.running[name].pid)
        self._supervisor.kill(name)
        self._print_line(f"  kill -9 {name}, with {len(executors)} processes of executors")
        return True

    def _names(self, service: str) -> list[str]:
        return sorted(name for name in self._supervisor.running if name.startswith(service))

    def _progress(self) -> str:
        batches = self._runtime.ledger.batches.find(limit=None)
        committed = sum(batch.state == "committed" for batch in batches)
        opened = ", ".join(f"{batch.state}" for batch in batches if batch.state != "committed")
        return f"published {self._published:>7,}   batches {committed:>3} committed; open: {opened or 'none'}"


def _children(pid: int) -> set[int]:
    return {child.pid for child in psutil.Process(pid).children()}


def _descendants(pid: int) -> set[int]:
    return {child.pid for child in psutil.Process(pid).children(recursive=True)}
