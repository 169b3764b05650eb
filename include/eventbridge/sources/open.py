"""From a bus in a rule file to its source; called by the stages, the watcher and the command line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from eventbridge.rule import Bus
from eventbridge.settings import Settings
from eventbridge.sources.embedded import EmbeddedBus


def open_source(bus: Bus, settings: Settings, clock: Callable[[], datetime]) -> EmbeddedBus:
    """Open the bus that a rule file describes, made if it is not there; raises BusError if it cannot be opened.

    Every bus of this version is embedded: the rule files' model knows no other type.
    """
    return EmbeddedBus(
        Path(settings.bus_folder), bus.name, topics=bus.source.topics, queues=bus.source.queues, clock=clock
    )
