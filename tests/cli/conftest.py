"""Fixtures of the command line's tests: a small shop on a temporary folder, and the command run on it."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from demo.receiver import ADDRESSES, Receiver

from eventbridge.cli import main
from eventbridge.cli.deliver import SOON_SECONDS
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.pipeline.deliver import Idle, deliver_until_idle
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.open import open_runtime

RULES = """
buses:
  orders:
    source: {{type: embedded, topics: [placed, paid], partitions: 2, start_at: {start_at}}}
rules:
  big-orders:
    bus: orders
    pattern: {{type: [order.placed], data: {{amount: [{{numeric: [">", 1000]}}]}}}}
    targets:
      accounts: {{type: file, path: accounts.jsonl}}
      note: {{type: file, path: note.jsonl, transform: {{form: JSONPATH, value: $.data.note, missing: error}}}}
  all-orders:
    bus: orders
    pattern: {{type: [{{prefix: order.}}]}}
    targets:
      archive: {{type: file, path: archive.jsonl}}
{more}
"""

HTTP_TARGETS = """
      gone: {{type: http, url: "{gone}", allow_http: true, max_in_flight: 1}}
      bad: {{type: http, url: "{bad}", allow_http: true}}
      flaky:
        type: http
        url: "{flaky}"
        allow_http: true
        retry: {{policy: custom, max_retries: 3, initial_delay: 1h, multiplier: 1, max_delay: 1h}}
"""


@dataclass(frozen=True)
class Result:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)


@dataclass
class Shop:
    """An installation on a folder that no command has touched yet: rule files, and the environment that names it."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def rules(self) -> Path:
        """The folder of its rule files."""
        return self.folder / "rules"

    def write_rules(self, *, start_at: str = "earliest", more: str = "") -> None:
        """Write the rule file."""
        self.rules.mkdir(exist_ok=True)
        text = RULES.format(start_at=start_at, folder=self.folder, more=more)
        (self.rules / "orders.yaml").write_text(text)

    def write(self, name: str, *lines: str) -> str:
        """Write a file of lines and return its path."""
        path = self.folder / name
        path.write_text("".join(f"{line}\n" for line in lines))
        return str(path)

    def orders(self, *amounts: float, **attributes: Any) -> str:
        """Write an order of each amount, as CloudEvents on JSON lines, and return the file's path."""
        lines = [
            {"specversion": "1.0", "id": f"o{number}", "source": "/shop", "type": "order.placed"}
            | {"data": {"amount": amount}}
            | attributes
            for number, amount in enumerate(amounts)
        ]
        return self.write("orders.jsonl", *map(json.dumps, lines))

    def deliver(self, runner: str = "orders", **settings: str) -> Idle:
        """Deliver until idle, routing in this process: what `eventbridge deliver` does with Spark."""
        runtime = open_runtime(
            Settings.from_mapping(self.environ | settings), connections_from_environment(self.environ)
        )
        try:
            return deliver_until_idle(runtime, runner, InProcessRouter(runtime.store), wait_seconds=SOON_SECONDS)
        finally:
            runtime.close()

    @contextmanager
    def process(self, *arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
        """Run the command in a process of its own, its output in pipes; it is killed if it outlives the block."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(
            [sys.executable, "-m", "eventbridge.cli", *arguments],
            env={**os.environ, **self.environ, **options.pop("env", {})},
            cwd=self.folder,
            text=True,
            **pipes | options,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run_process(self, *arguments: str, env: Mapping[str, str] | None = None) -> Result:
        """Run the command in a process of its own."""
        with self.process(*arguments, env=env or {}, stdin=subprocess.DEVNULL) as process:
            out, err = process.communicate(timeout=120)
        return Result(process.returncode, out, err)


def open_shop(folder: Path) -> Shop:
    """Return a shop whose bus starts at earliest, with two rules and file targets."""
    made = Shop(
        folder,
        {
            "EVENTBRIDGE_HOME": str(folder / "home"),
            "EVENTBRIDGE_FILE_TARGET_FOLDERS": str(folder),
            "EVENTBRIDGE_RULES_FOLDER": str(folder / "rules"),
            "EVENTBRIDGE_DISK_MIN_FREE_SIZE": "0",
            "EVENTBRIDGE_ALLOW_ADDRESSES": ADDRESSES,
        },
    )
    made.write_rules()
    return made


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A shop in the environment of this process."""
    made = open_shop(tmp_path)
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def eventbridge(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Result]:
    """Run the command in this process, on the shop: `eventbridge("rules", "check", stdin=b"")`."""

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "argv", ["eventbridge", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        code = ended.value.code
        return Result(code if isinstance(code, int) else 0, printed.out, printed.err)

    return run


@pytest.fixture(scope="session")
def delivered_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a shop after a delivery in which everything happened, its receiver still there."""
    shop = open_shop(tmp_path_factory.mktemp("shop"))
    with Receiver(shop.folder / "received.jsonl") as receiver:
        urls = {name: receiver.url(f"/{name}/orders") for name in ("gone", "bad", "flaky")}
        shop.write_rules(more=HTTP_TARGETS.format(**urls))
        lines = Path(shop.orders(500, 1500, 2500, 100)).read_text().splitlines()
        lines[2] = lines[2].replace('"amount"', '"note": "gift", "amount"')
        published = shop.run_process("events", "publish", "orders", shop.write("all.jsonl", *lines, "not json", "{}"))
        assert published.code == 0, published.err
        shop.deliver()
        yield shop.folder


@pytest.fixture
def delivered(shop: Shop, delivered_once: Path) -> Shop:
    """A copy of a shop after a delivery in which everything happened.

    Of 4 orders and 2 lines that are no events: `archive` has all, `flaky` waits an hour for its retries, `bad` has
    refused all, `gone` has refused one and holds the rest, `note` fails for one of two, and 2 are malformed.
    """
    shutil.copytree(delivered_once, shop.folder, dirs_exist_ok=True)
    return shop
