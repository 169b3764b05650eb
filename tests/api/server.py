"""Runs `eventbridge serve` in a process of its own, for the tests of the API."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from commands.start import command

from eventbridge.client import EventBridgeClient
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.control.api_tokens import create_token
from eventbridge.control.backtest import BacktestRequest, backtest_rules, keep_report
from eventbridge.control.consecutive_batches import deliver_redrive, deliver_replay
from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.testing.sources import messages_of

RULES = """
buses:
  orders: {{source: {{type: embedded, topics: [placed, paid], partitions: 2, start_at: earliest}}{more}}}
  invoices: {{source: {{type: embedded}}}}
rules:
  all-orders:
    bus: orders
    pattern: {{}}
    targets: {{archive: {{type: file, path: {folder}/archive.jsonl}}}}
"""


def order(number: int = 0, **attributes: Any) -> dict[str, Any]:
    """Return a CloudEvent whose id has the number."""
    event = {"specversion": "1.0", "id": f"o{number}", "source": "/shop", "type": "order.placed"}
    return {**event, "data": {"amount": number}, **attributes}


class Installation:
    """A folder with rule files, and the environment variables for it."""

    def __init__(self, folder: Path, *, more: str = "", **settings: str) -> None:
        self.folder = folder
        (folder / "rules").mkdir()
        self.write_rules(more)
        self.environ = {
            "EVENTBRIDGE_HOME": str(folder / "home"),
            "EVENTBRIDGE_FILE_TARGET_FOLDERS": str(folder),
            "EVENTBRIDGE_RULES_FOLDER": str(folder / "rules"),
            "EVENTBRIDGE_DISK_MIN_FREE_SIZE": "0",
            **settings,
        }

    def write_rules(self, more: str = "") -> None:
        """Write the rule file; `more` is added to the bus `orders`."""
        (self.folder / "rules" / "orders.yaml").write_text(RULES.format(folder=self.folder, more=more))

    def command(self, *arguments: str) -> list[str]:
        """Return the arguments of a command."""
        return command(*arguments)

    def run(self, *arguments: str) -> str:
        """Run a command and return its output; it must succeed."""
        return subprocess.run(
            self.command(*arguments), env=self.env, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    def deliver(self, runner: str) -> None:
        """Deliver the lag of a runner, in this process and without Spark."""
        with self.opened() as runtime:
            deliver_until_idle(runtime, runner, InProcessRouter(runtime.store), wait_seconds=1.0)

    def replay(self, replay_id: str) -> None:
        """Deliver a recorded replay, in this process."""
        with self.opened() as runtime:
            deliver_replay(runtime, replay_id, InProcessRouter(runtime.store))

    def redrive(self, redrive_id: str) -> None:
        """Deliver a recorded redrive, in this process."""
        with self.opened() as runtime:
            deliver_redrive(runtime, redrive_id, InProcessRouter(runtime.store))

    def backtest(self, rule: str) -> str:
        """Backtest a rule on the last day's archive, in this process, store the report and return its id."""
        with self.opened() as runtime:
            report = backtest_rules(runtime, rule, BacktestRequest("1d"), InProcessRouter(runtime.store))
            keep_report(runtime, report)
        return report.backtest_id

    def opened(self) -> AbstractContextManager[Runtime]:
        """Open the installation in this process."""
        return closing(open_runtime(Settings.from_mapping(self.env), connections_from_environment(self.env)))

    @property
    def env(self) -> Mapping[str, str]:
        """The environment of the processes."""
        return {**os.environ, **self.environ}

    def token(self, name: str, *scopes: str, owners: Sequence[str] = ()) -> str:
        """Create a token, limited to `owners` if given, and return its secret."""
        with self.opened() as runtime:
            return create_token(runtime, name, scopes, None, owners)[1]

    def bodies(self, topic: str = "placed", bus: str = "orders") -> dict[tuple[int, int], bytes]:
        """Return the messages of a topic, by partition and offset."""
        from datetime import UTC, datetime

        folder = self.folder / "home" / "bus"
        with EmbeddedBus(folder, bus, topics=(topic,), partitions=2, clock=lambda: datetime.now(UTC)) as opened:
            return {
                (partition.partition_id, message.offset): message.body
                for partition in opened.partitions()
                for message in messages_of(opened.read(partition, opened.earliest(partition), opened.end(partition)))
            }


class Server:
    """`eventbridge serve` on a free port, stopped at the end of a `with` block."""

    #: The command that serves.
    COMMAND: tuple[str, ...] = ("serve", "--port", "0")

    def __init__(self, installation: Installation) -> None:
        self.installation = installation

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self.installation.command(*self.COMMAND),
            env=self.installation.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            self.process.kill()
            raise RuntimeError(f"the server did not start: {line!r} {self.process.communicate()[1]}")
        self.url = line.split()[-1]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal, and return the exit code and the standard error."""
        self.process.send_signal(number)
        _, error = self.process.communicate(timeout=60)
        return self.process.returncode, error

    def api(self, token: str) -> EventBridgeClient:
        """Return the typed client of the server, with a token."""
        return EventBridgeClient(self.url, token)

    def client(self, token: str = "") -> httpx.Client:
        """Return a client of the server, with a token."""
        return httpx.Client(
            base_url=self.url, headers={"authorization": f"Bearer {token}"} if token else {}, timeout=60
        )
