"""Opens an embedded bus."""

from __future__ import annotations

from pathlib import Path

from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.sources.embedded.fields import EmbeddedFields
from eventbridge.sources.opening import Opening


def open_embedded(opening: Opening[EmbeddedFields]) -> EmbeddedBus:
    """Open the bus in the bus folder of the settings, made if it is not there; raises BusError if it cannot be."""
    source, folder = opening.source, Path(opening.settings.bus_folder)
    return EmbeddedBus(folder, opening.bus, topics=source.topics, queues=source.queues, clock=opening.clock)
