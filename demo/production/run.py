"""`make up-production`: runs every service of docker-compose.yaml natively until Ctrl-C, and prints their addresses.

With `--smoke EVENTS` it delivers this number of flights, kills a Celery worker, Spark's master and a Spark worker
meanwhile (with `--calm` none), proves that everything is reconciled, and ends.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Final

from java_tools import ToolMissing
from s3proxy.server import fetch_s3proxy
from services.kafka import fetch_kafka
from services.postgresql import fetch_postgresql

from demo.config import ROOT, DemoError, empty, lock
from demo.production.env import random_secrets
from demo.production.shipped import ShippedRules
from demo.production.smoke import VICTIMS, Proof, smoke
from demo.production.supervisor import Supervisor, remove_data
from demo.production.topics import Topics
from demo.services import orphaned_groups, stop_groups
from eventbridge.errors import EventBridgeError

FOLDER: Final = ROOT / ".production"
#: The variables of `.env` that it accepts. Secrets are always new.
GIVEN: Final = (
    "RULES_FOLDER",
    "TOPICS",
    "PARTITIONS",
    "SCHEDULERS",
    "WORKERS",
    "WORKER_CONCURRENCY",
    "PARALLELISM",
    "SPARK_WORKERS",
    "SPARK_CORES",
    "SPARK_MEMORY",
    "PARSE_SECONDS",
    "ALLOW_ADDRESSES",
    "KEEP_DAYS",
)
_POLL_SECONDS = 1.0


def main() -> int:
    """Return the exit code: 0 if it was stopped, or if the smoke run is reconciled; 1 if not, or after an error."""
    parser = argparse.ArgumentParser(prog="python -m demo.production.run")
    parser.add_argument("--smoke", type=int, metavar="EVENTS", help="deliver this number of flights, prove it, and end")
    parser.add_argument("--calm", action="store_true", help="with --smoke: kill no process")
    parser.add_argument("--shipped", action="store_true", help="with --smoke: use the demo's rules, on Kafka")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of all data (default: .production)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        for fetch in (fetch_postgresql, fetch_kafka, fetch_s3proxy):
            fetch()
        with ExitStack() as ended:
            return _run(options, options.folder.resolve(), ended)
    except (DemoError, EventBridgeError, ToolMissing) as error:
        _print_line(f"\n{error}")
        return 1
    except KeyboardInterrupt:
        _print_line("\nInterrupted.")
        return 1 if options.smoke else 0


def _run(options: argparse.Namespace, folder: Path, ended: ExitStack) -> int:
    _clear(folder)
    shipped = ended.enter_context(ShippedRules(folder)) if options.shipped else None
    supervisor = _begin(folder, shipped.variables if shipped else {})
    ended.callback(_end, supervisor)
    if shipped:
        shipped.connect(supervisor)
    if options.smoke:
        proof: Proof = shipped or Topics(f"{supervisor.native.address('kafka')}:9092")
        return smoke(supervisor, options.smoke, _print_line, proof, () if options.calm else VICTIMS)
    while True:
        supervisor.restart_ended()
        time.sleep(_POLL_SECONDS)


def _end(supervisor: Supervisor) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not leave services running
    supervisor.stop()
    _print_line("All services have ended.")


def _clear(folder: Path) -> None:
    lock(folder)
    stop_groups(orphaned_groups(folder))  # of an earlier run that was killed
    remove_data(folder)
    empty(folder)


def _begin(folder: Path, more: Mapping[str, str]) -> Supervisor:
    variables = {name: os.environ[name] for name in GIVEN if os.environ.get(name)} | random_secrets() | more
    supervisor = Supervisor.of(variables, folder, _print_line)
    _save_settings(supervisor, folder / "settings.sh")
    _print_line(f"Starting {len(supervisor.services)} services of docker-compose.yaml natively ...")
    began = time.monotonic()
    try:
        supervisor.start()
    except BaseException:
        supervisor.stop()
        raise
    _print_line(
        f"Started in {time.monotonic() - began:.0f} s.\n"
        f"  Airflow   http://{supervisor.native.address('airflow-api')}:8080  "
        f"user admin  password {variables['AIRFLOW_PASSWORD']}\n"
        f"  HTTP API  http://{supervisor.native.address('eventbridge-api')}:8090\n"
        f"  Kafka     {supervisor.native.address('kafka')}:9092\n"
        f"  rules     {supervisor.environment('eventbridge-api')['EVENTBRIDGE_RULES_FOLDER']}\n"
        f"  logs      {folder / 'logs'}\n"
        f"`source {folder.name}/settings.sh` makes the command `eventbridge` use it; Ctrl-C stops it."
    )
    return supervisor


def _save_settings(supervisor: Supervisor, file: Path) -> None:
    """Write the settings with which the command line uses the same installation as the services."""
    environ = supervisor.environment("eventbridge-api").items()
    ours = [f"export {name}={shlex.quote(value)}\n" for name, value in environ if name.startswith("EVENTBRIDGE_")]
    file.write_text("".join(ours))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _print_line(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the output of the command


if __name__ == "__main__":
    sys.exit(main())
