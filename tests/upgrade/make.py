"""Makes the installation of a version by that version's own commands: `python -m upgrade.make 0.2.0`.

Run once at each release; what it writes beside this file is kept for ever, and every later version opens it. Of 40
orders `archive` has all, `gone` refused one with 410 and holds the rest, `bad` refused all, `flaky` waits for a retry.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from eventbridge.testing.receiver import ADDRESSES, Receiver

HERE = Path(__file__).parent

RULES = """\
buses:
  orders:
    source: {{type: embedded, topics: [placed], partitions: 1, start_at: earliest}}
rules:
  all-orders:
    bus: orders
    pattern: {{type: [{{prefix: order.}}]}}
    targets:
      archive: {{type: file, path: archive.jsonl}}
      gone: {{type: http, url: "{gone}", allow_http: true, max_in_flight: 1}}
      bad: {{type: http, url: "{bad}", allow_http: true}}
      flaky:
        type: http
        url: "{flaky}"
        allow_http: true
        ordering_key: $.data.customer
        retry: {{policy: custom, max_retries: 9, initial_delay: 1h, multiplier: 1,
          max_delay: 1h, maximum_event_age: 30d}}
"""


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of an installation that lies in a folder."""
    return {
        "EVENTBRIDGE_HOME": str(folder / "home"),
        "EVENTBRIDGE_RULES_FOLDER": str(folder / "rules"),
        "EVENTBRIDGE_DISK_MIN_FREE_SIZE": "0",
        "EVENTBRIDGE_ALLOW_ADDRESSES": ADDRESSES,
    }


def write_rules(folder: Path, urls: dict[str, str]) -> None:
    """Write the rule file, with the URLs of its three http targets."""
    (folder / "rules").mkdir(exist_ok=True)
    (folder / "rules" / "orders.yaml").write_text(RULES.format(**urls))


def orders(first: int, count: int) -> str:
    """Return orders as CloudEvents on JSON lines, of four customers."""
    return "".join(
        json.dumps(
            {"specversion": "1.0", "id": f"o{number}", "source": "/shop", "type": "order.placed"}
            | {"data": {"customer": f"c{number % 4}", "amount": number}}
        )
        + "\n"
        for number in range(first, first + count)
    )


def run(folder: Path, *arguments: str, stdin: str = "") -> str:
    """Run a command of the product in the installation and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "eventbridge.cli", *arguments],
        cwd=folder,
        env={**os.environ, **environment(folder)},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def make(version: str, folder: Path) -> Path:
    """Make the installation in a folder and return the archive that was written of it."""
    with Receiver(folder / "received.jsonl") as receiver:
        refusing = {"gone": "gone/orders", "bad": "bad/orders", "flaky": "status/503"}
        write_rules(folder, {name: receiver.url(f"/{path}") for name, path in refusing.items()})
        run(folder, "bus", "publish", "orders", "-", "--topic", "placed", stdin=orders(0, 40) + '{"id": "none"}\n')
        run(folder, "deliver", "--runner", "orders", "--until-idle", "--wait", "0")
        run(folder, "bus", "publish", "orders", "-", "--topic", "placed", stdin=orders(40, 5))  # still to be taken
    archive = HERE / f"made_by_{version.replace('.', '_')}.tar.xz"
    with tarfile.open(archive, "w:xz") as kept:
        for part in ("home/ledger.sqlite", "home/store", "home/bus", "archive.jsonl"):
            kept.add(folder / part, part)
    return archive


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        sys.stdout.write(f"{make(sys.argv[1], Path(made))}\n")
