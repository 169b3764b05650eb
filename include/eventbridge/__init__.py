"""EventBridge for Airflow and Spark: rules in files, events from a bus to targets, every event accounted for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eventbridge.version import __version__ as __version__

if TYPE_CHECKING:
    from eventbridge.control.submissions import PublishResult


def publish(
    bus: str, events: str | Sequence[Mapping[str, Any] | str | bytes], *, topic: str | None = None
) -> list[PublishResult]:
    """Publish CloudEvents durably, all or none of them, and return the position of each.

    `events` are dicts, JSON strings, or one string of JSON lines; an event without `id` gets one. If `topic` is None,
    the events go to the bus's first topic. The settings come from the EVENTBRIDGE_* environment variables. Raises
    UserError with all errors in the input, and BusError if the bus fails.
    """
    import os

    from eventbridge.config.connection import connections_from_environment
    from eventbridge.config.settings import Settings
    from eventbridge.control.publish import bodies_of, publish_events
    from eventbridge.runtime.open import open_runtime

    runtime = open_runtime(Settings.from_mapping(os.environ), connections_from_environment(os.environ))
    try:
        return publish_events(runtime, bus, topic, bodies_of(events))[1]
    finally:
        runtime.close()
