"""Opens an embedded bus: in a file of this host, or in the ledger's database that several hosts share."""

from __future__ import annotations

from pathlib import Path

from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.sources.embedded.fields import EmbeddedFields
from eventbridge.sources.opening import Opening
from eventbridge.sources.protocol import LogSource


def open_embedded(opening: Opening[EmbeddedFields]) -> LogSource:
    """Open the bus, and create it if it does not exist; raises BusError on failure.

    With a ledger in PostgreSQL the bus is in that database, shared by all hosts; otherwise in the bus folder.
    """
    source, url = opening.source, opening.settings.ledger_url
    if url.startswith("postgres"):
        from eventbridge.sources.embedded.database_bus import DatabaseBus  # psycopg is only needed here

        return DatabaseBus(url, opening.bus, topics=source.topics, partitions=source.partitions, clock=opening.clock)
    folder = Path(opening.settings.bus_folder)
    return EmbeddedBus(folder, opening.bus, topics=source.topics, partitions=source.partitions, clock=opening.clock)
