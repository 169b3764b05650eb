"""Sends metrics by OTLP while `eventbridge serve` runs, if the OTEL_* variables name a collector."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from eventbridge.errors import EventBridgeError, SettingsError
from eventbridge.runtime.runtime import Runtime
from eventbridge.telemetry.selection import is_exported
from eventbridge.views.metrics import metrics

if TYPE_CHECKING:
    from eventbridge.telemetry.otlp_metrics import MetricsSender

log = logging.getLogger(__name__)

_INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"


@contextmanager
def pushed_metrics(runtime: Runtime) -> Iterator[None]:
    """Send metrics every OTEL_METRIC_EXPORT_INTERVAL during the block, and once more at its end.

    Raises SettingsError for an invalid interval, ModuleNotFoundError if the extra `otel` is missing.
    """
    if not is_exported("metrics", os.environ):
        yield
        return
    seconds = _seconds()
    from eventbridge.telemetry.otlp_metrics import MetricsSender

    stop = threading.Event()
    thread = threading.Thread(
        target=_send, args=(runtime, MetricsSender(), seconds, stop), name="otlp metrics", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(seconds)


def _send(runtime: Runtime, sender: MetricsSender, seconds: float, stop: threading.Event) -> None:
    while True:
        stopped = stop.wait(seconds)
        try:
            if not sender.send(metrics(runtime)):
                log.warning("the OpenTelemetry collector did not accept the metrics")
        except EventBridgeError as error:
            log.warning("metrics were not sent: %s", error)
        if stopped:
            sender.close()
            return


def _seconds() -> float:
    text = os.environ.get(_INTERVAL, "60000")
    if not text.isdecimal() or not int(text):
        raise SettingsError(f"{_INTERVAL} is {text!r}. Write a number of milliseconds, such as 60000")
    return int(text) / 1_000
