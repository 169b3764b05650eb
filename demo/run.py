"""`make demo`: delivers real flights through a real Airflow and Spark and proves that none is lost, else exit 1."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from types import FrameType

from demo.airflow import Airflow
from demo.config import RECEIVER_PORT, ROOT, RUN_FOLDER, DemoError, new_config, options, product_settings
from demo.flights import publish_flights
from demo.progress import watch
from demo.proof import differences, print_result
from demo.services import Services, orphaned_groups
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.errors import EventBridgeError
from eventbridge.repair.audit import audit
from eventbridge.rules.load import load_rules
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.protocol import Publisher

#: Flights per second: slow enough that the DAGs run while flights are published.
PER_SECOND = 2_000.0

_BUS = "flights"
_ALL = 336_776


def main() -> int:
    """Return the exit code: 0 if everything is reconciled and the receiver agrees, 1 if not, or after an error."""
    signal.signal(signal.SIGTERM, _interrupt)
    os.chdir(ROOT)
    services = None
    try:
        total = _how_many(os.environ.get("EVENTS", "60000"))
        if orphaned_groups(RUN_FOLDER):
            raise DemoError("A demo is already running, or was killed. Stop its services with `make down`.")
        services = Services(new_config(RUN_FOLDER, **options(os.environ)))  # type: ignore[arg-type]
        return _demo(services, total)
    except (DemoError, EventBridgeError) as error:
        _print_line(f"\n{error}")
        return 1
    except KeyboardInterrupt:
        _print_line("\nInterrupted.")
        return 130
    finally:
        if services is not None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not leave services running
            services.stop()
            _print_line("All services have ended.")


def _demo(services: Services, total: int) -> int:
    config = services.config
    began = time.monotonic()
    more = ", an S3 server" * bool(config.s3_port) + ", PostgreSQL" * bool(config.ledger_port)
    more += f", {config.bus}" * bool(config.bus_ports)
    _print_line(f"Starting Airflow, Spark Connect{more} and the receiver ...")
    services.start()
    _print_line(f"Started in {time.monotonic() - began:.0f} s: {config.url}, user admin, password {config.password}")
    if config.receiver_port != RECEIVER_PORT:
        _print_line(f"Receiver: http://127.0.0.1:{config.receiver_port}")
    settings = Settings.from_mapping(product_settings(config))
    with closing(open_runtime(settings, connections_from_environment(product_settings(config)))) as runtime:
        _deliver(services, runtime, total)
        _print_line("All possible deliveries are done. Stopping the services and auditing the result:")
        services.stop(but=["s3", "postgresql", "bus"])  # the audit reads from them
        rules = load_rules(ROOT / config.rules_folder)
        return print_result(differences(runtime, audit(runtime), rules, config.received, _print_line), _print_line)


def _deliver(services: Services, runtime: Runtime, total: int) -> None:
    _print_line(f"Publishing {total:,} flights while the DAGs deliver them:")
    rules = runtime.rule_set()
    with (
        closing(runtime.open_publisher(rules.buses[_BUS])) as bus,
        closing(Airflow(services.config)) as airflow,
    ):
        publisher = _Publisher(bus, total)
        publisher.start()
        try:
            watch(runtime, rules, lambda: publisher.published, total, lambda: _check(services, publisher, airflow))
        finally:
            publisher.stop()


class _Publisher(threading.Thread):
    """Publishes the flights in its own thread, and counts them."""

    def __init__(self, bus: Publisher, total: int) -> None:
        super().__init__(name="publisher", daemon=True)
        self._bus = bus
        self._total = total
        self._stopped = threading.Event()
        self.published = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            publish_flights(self, self._total, batch=500, per_second=PER_SECOND, sleep=self._wait)
        except Exception as error:
            self.error = error

    def publish(self, records: Sequence[tuple[bytes, str | None]]) -> None:
        self._bus.publish(records)
        self.published += len(records)

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def _wait(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise DemoError("Publishing was stopped.")


def _check(services: Services, publisher: _Publisher, airflow: Airflow) -> None:
    services.check()
    if publisher.error is not None:
        raise DemoError(f"Publishing failed: {publisher.error}")
    for error in airflow.import_errors():
        raise DemoError(f"Airflow cannot import a DAG file:\n{error}")


def _how_many(text: str) -> int:
    if text == "all":
        return _ALL
    if not (text.isascii() and text.isdecimal()) or not 0 < int(text) <= _ALL:
        raise DemoError(f"EVENTS is {text!r}; it must be all, or a number from 1 to {_ALL}")
    return int(text)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _print_line(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the demo's output


if __name__ == "__main__":
    sys.exit(main())
