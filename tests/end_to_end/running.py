"""A real Airflow, Spark Connect and receiver, started as by `make up`, with helpers for tests."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx
from demo.airflow import Airflow
from demo.config import DemoConfig
from demo.receipts import compare, read_record
from demo.services import Services
from demo.settled import unsettled
from demo.tally import tally

from eventbridge.errors import EventBridgeError
from eventbridge.event.ids import delivery_id, delivery_id_text
from eventbridge.model.batch import Batch
from eventbridge.repair.audit import audit
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.sources.embedded.fields import EmbeddedFields

#: The longest wait for a condition on a busy machine.
PATIENCE_SECONDS = 120.0

#: The store's quota in bytes: more than a test writes.
QUOTA = 1 << 40

_POLL_SECONDS = 0.1
_TAIL = 25

Found = TypeVar("Found")


@dataclass
class RunningEnvironment:
    """One running environment: drive it by `airflow` and `publish`, read it by `runtime` and the receiver's record."""

    services: Services
    airflow: Airflow
    runtime: Runtime

    @property
    def config(self) -> DemoConfig:
        """Its folders and ports."""
        return self.services.config

    def publish(self, bus: str, numbers: range) -> None:
        """Publish one CloudEvent per number, durably; the number is in its id, its subject and data.n."""
        # from the rule files only: a test may have removed the ledger
        source = self.runtime.rule_files().buses[bus].source
        assert isinstance(source, EmbeddedFields)
        # the first process to open it creates it, so it must have the number of partitions of its rules
        with EmbeddedBus(
            self.runtime.settings.bus_folder, bus, partitions=source.partitions, clock=self.runtime.clock
        ) as log:
            for start in range(0, len(numbers), 1_000):
                log.publish([(_event(bus, number), f"customer-{number}") for number in numbers[start : start + 1_000]])

    def until(self, what: str, look: Callable[[], Found], seconds: float = PATIENCE_SECONDS) -> Found:
        """Return the result of `look` once it is true; fails with a diagnosis after the timeout.

        If the ledger or the store is busy or missing, `look` is repeated.
        """
        end = time.monotonic() + seconds
        last_error = ""
        while True:
            self.services.check()
            try:
                found = look()
                last_error = ""
            except EventBridgeError as error:
                found, last_error = None, str(error)  # type: ignore[assignment]
            if found:
                return found
            if time.monotonic() > end:
                raise AssertionError(f"After {seconds:g} s still not: {what}. {last_error}\n{self.diagnosis()}")
            time.sleep(_POLL_SECONDS)

    def until_settled(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until no event waits, no batch is open and nothing is pending."""
        self.until("everything is settled", lambda: not self.unsettled(), seconds)

    def unsettled(self) -> list[str]:
        """Return what is not settled: waiting events, open batches, pending deliveries."""
        held = [f"pending: {row}" for row in self.runtime.ledger.pending.counts() if row.state == "on_hold"]
        return [*unsettled(self.runtime), *held]

    def open(self) -> list[Batch]:
        """Return the batches that are not committed."""
        return [batch for batch in self.runtime.ledger.batches.find(limit=None) if batch.state != "committed"]

    def requests(self, path: str) -> list[str]:
        """Return the webhook-id of every request that the receiver got on a path, in order."""
        if not self.config.received.exists():
            return []
        lines = self.config.received.read_bytes().split(b"\n")[:-1]  # the last line may be incomplete
        return [line["webhook_id"] for line in map(json.loads, lines) if line["path"] == path]

    def differences(self) -> list[str]:
        """Audit all batches, then compare them with the receiver's own record; only when everything is settled."""
        found = list(audit(self.runtime).differences)
        files = self.runtime.settings.file_target_folders[0]
        compared = compare(self.runtime.rule_set(), tally(self.runtime), read_record(self.config.received), files)
        return found + [f"{name}: {difference}" for name, difference in compared if difference]

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the runs of a DAG, the newest first."""
        found = self.airflow.call("GET", f"/dags/{dag_id}/dagRuns", params={"order_by": "-run_after", "limit": 50})
        runs: list[dict[str, Any]] = found["dag_runs"]
        return runs

    def trigger(self, dag_id: str, conf: Mapping[str, object] | None = None) -> str:
        """Start a run of a DAG like the UI does with a form, and return its id."""
        body = {"logical_date": None, "conf": dict(conf or {})}
        run = self.airflow.call("POST", f"/dags/{dag_id}/dagRuns", json=body)
        return str(run["dag_run_id"])

    def backfill(self, dag_id: str, hours: tuple[datetime, datetime], more: Mapping[str, object]) -> None:
        """Run a DAG for a range of times like the UI's form, once the backfill before has ended.

        On SQLite Airflow may respond with 500 for a backfill that is partly created. A second call then conflicts with
        the first, which is fine if its runs continue; if it has none, Airflow ends it after 2 min.
        """
        body = {"dag_id": dag_id, "from_date": hours[0].isoformat(), "to_date": hours[1].isoformat(), **more}

        def is_over() -> bool:
            found = self.airflow.call("GET", "/backfills", params={"dag_id": dag_id})
            return all(each["completed_at"] for each in found["backfills"])

        def begins() -> bool:
            try:
                self.airflow.call("POST", "/backfills", json=body)
            except httpx.HTTPStatusError as error:
                if error.response.status_code != httpx.codes.CONFLICT:
                    raise
                backfilled = [run for run in self.runs(dag_id) if run["run_type"] == "backfill"]
                return any(run["state"] in {"queued", "running"} for run in backfilled)
            return True

        self.until("the backfill before is over", is_over)
        self.until("the backfill begins", begins, seconds=2 * PATIENCE_SECONDS)

    def task_log(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
        """Return the log of the last try of a task, or of one of its mapped instances."""
        task = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
        tries = self.airflow.call("GET", task if map_index < 0 else f"{task}/{map_index}")["try_number"]
        log = {"params": {"map_index": map_index}, "headers": {"Accept": "application/json"}}
        return json.dumps(self.airflow.call("GET", f"{task}/logs/{tries}", **log))

    def reparse(self, dag_id: str) -> None:
        """Make Airflow parse a DAG file now."""
        token = self.airflow.call("GET", f"/dags/{dag_id}")["file_token"]
        self.airflow.call("PUT", f"/parseDagFile/{token}")

    def diagnosis(self) -> str:
        """Return the likely reasons for a timeout: unsettled work, runs, and the ends of the newest logs."""
        parts = [_section("not settled", _or_error(self.unsettled))]
        parts.append(_section("newest runs", _or_error(self._newest_runs)))
        logs = [*self.config.logs.glob("*.log"), *(self.config.airflow_home / "logs").rglob("attempt=*.log")]
        for log in sorted(logs, key=lambda path: path.stat().st_mtime)[-8:]:
            lines = log.read_text(errors="replace").splitlines()[-_TAIL:]
            parts.append(_section(str(log.relative_to(self.config.folder)), [line[:500] for line in lines]))
        return "\n".join(parts)

    def _newest_runs(self) -> list[str]:
        return [f"{run['dag_id']} {run['dag_run_id']} {run['state']}" for run in self.runs("~")[:20]]


def source_of(number: int) -> str:
    """Return the source of the event with a number."""
    return f"/shops/{number % 7}"


def delivery_of(bus: str, number: int, rule: str, target: str) -> str:
    """Return the webhook-id of a target's delivery of the event with a number."""
    return delivery_id_text(delivery_id(bus, source_of(number), f"{bus}-{number}", rule, target))


def _event(bus: str, number: int) -> bytes:
    event = {
        "specversion": "1.0",
        "id": f"{bus}-{number}",
        "source": source_of(number),
        "type": "order.placed",
        "subject": f"order {number}",
        "data": {"n": number, "items": [{"sku": f"sku-{item}", "count": item} for item in range(5)]},
    }
    return json.dumps(event).encode()


def _section(title: str, lines: Sequence[object]) -> str:
    return "\n".join([f"--- {title}", *(f"    {line}" for line in lines)])


def _or_error(look: Callable[[], Sequence[Any]]) -> Sequence[Any]:
    try:
        return look()
    except Exception as error:  # a diagnosis must not hide the original failure
        return [f"{type(error).__name__}: {error}"]


def ledger_files(config: DemoConfig) -> list[Path]:
    """Return the files of the ledger."""
    return sorted(config.home.glob("ledger.sqlite*"))
