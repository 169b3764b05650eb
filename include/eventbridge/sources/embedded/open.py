"""Opens an embedded bus: beside the ledger, in a file of one host or on the server that several share."""

from __future__ import annotations

from pathlib import Path

from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.sources.embedded.fields import EmbeddedFields
from eventbridge.sources.opening import Opening
from eventbridge.sources.protocol import LogSource


def open_embedded(opening: Opening[EmbeddedFields]) -> LogSource:
    """Open the bus, made if it is not there; raises BusError if it cannot be.

    With a ledger in PostgreSQL it lies in that database, so that what all hosts publish meets; else in the bus folder.
    """
    source, url = opening.source, opening.settings.ledger_url
    if url.startswith("postgres"):
        from eventbridge.sources.embedded.database_bus import DatabaseBus  # only then is psycopg needed

        return DatabaseBus(url, opening.bus, topics=source.topics, partitions=source.partitions, clock=opening.clock)
    folder = Path(opening.settings.bus_folder)
    return EmbeddedBus(folder, opening.bus, topics=source.topics, partitions=source.partitions, clock=opening.clock)
