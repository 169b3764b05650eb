"""The demo's rules in a smoke run: their bus is a Kafka topic, and their targets must end as in the demo."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from demo import proof
from demo.airflow import Airflow
from demo.config import EMBEDDED, ON_BROKER, RECEIVER_PORT, ROOT, RULES_FOLDER, copy_rules, new_signing_secret
from demo.production.supervisor import Supervisor
from demo.progress import Progress
from demo.proof import PrintLine
from demo.receiver import ADDRESSES, Receiver
from eventbridge.repair.audit import Audit
from eventbridge.rules.load import load_rules
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.status import status

_BATCHES: Final = 1_000_000


@dataclass(frozen=True)
class _Address:
    url: str
    password: str


class ShippedRules:
    """A receiver and a copy of the rules that names it, in a folder. A context manager that stops the receiver."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._received = folder / "received.jsonl"
        self._receiver = Receiver(self._received)
        self._flights = 0

    def __enter__(self) -> Self:
        self._receiver.__enter__()
        changes = {
            f"127.0.0.1:{RECEIVER_PORT}": f"127.0.0.1:{self._receiver.port}",
            EMBEDDED: ON_BROKER.format(bus="kafka", connection="kafka"),
        }
        self._rules = load_rules(copy_rules(self._folder, ROOT / RULES_FOLDER, changes))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._receiver.__exit__(kind, error, at)

    @property
    def variables(self) -> dict[str, str]:
        """The variables of `.env` with which the services use these rules."""
        return {"RULES_FOLDER": str(self._folder / "rules"), "ALLOW_ADDRESSES": ADDRESSES}

    def connect(self, supervisor: Supervisor) -> None:
        """Create the connection that the rules name, as a person does in Airflow."""
        url = f"http://{supervisor.native.address('airflow-api')}:8080"
        airflow = Airflow(_Address(url, supervisor.environment("prepare")["AIRFLOW_PASSWORD"]))
        extra = json.dumps({"signing_secret": new_signing_secret()})
        host = self._receiver.url("")
        made = {"connection_id": "flights_receiver", "conn_type": "http", "host": host, "extra": extra}
        try:
            airflow.call("POST", "/connections", json=made)
        finally:
            airflow.close()

    def expect(self, event: Mapping[str, Any]) -> None:
        """Count a published flight."""
        self._flights += 1

    def is_settled(self, runtime: Runtime, published: int) -> bool:
        """Return whether every target that accepts deliveries has all of them."""
        return Progress.of(status(runtime, batches=_BATCHES), self._rules, published).is_done(self._flights)

    def differences(self, runtime: Runtime, audited: Audit, print_line: PrintLine) -> list[str]:
        """Print the results of reconciliation, receiver and files, and return the differences."""
        return proof.differences(runtime, audited, self._rules, self._received, print_line)
