"""Converts messages of any form to events in structured JSON, the form that the archive keeps."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.errors import EventError
from eventbridge.event.bindings import Place, form_of, of_binary, of_plain
from eventbridge.model.partition import Partition
from eventbridge.rules.model import EventMapping


def as_events(
    messages: pa.Table, partition: Partition, mapping: EventMapping | None
) -> tuple[pa.Table, Mapping[int, str]]:
    """Return messages with bodies in structured JSON, and by row the reason why a message is no event.

    A refused message keeps its body. Without a mapping, a message whose headers name no form is unchanged: its body
    decides whether it is an event. So is a message without a body, a tombstone, unless it is an event in binary mode
    without data.
    """
    if mapping is None and not _has_binary(messages["headers"]):
        return messages, {}
    attributes = mapping.attributes if mapping is not None else None
    bodies = messages["body"].to_pylist()
    refused: dict[int, str] = {}
    offsets, times = messages["offset"].to_pylist(), messages["published_at"].to_pylist()
    for row, listed in enumerate(messages["headers"].to_pylist()):
        headers = [(each["name"], each["value"]) for each in listed or ()]
        try:
            form = form_of(headers)
            if form == "binary":
                bodies[row] = of_binary(headers, bodies[row])
            elif form == "plain" and attributes is not None and (body := bodies[row]) is not None:
                place = Place("-".join(str(part) for part in (*partition, offsets[row]) if part != ""), times[row])
                bodies[row] = of_plain(attributes, body, place, headers)
        except EventError as error:
            refused[row] = str(error)
    column = messages.schema.get_field_index("body")
    return messages.set_column(column, messages.schema.field("body"), pa.array(bodies, pa.binary())), refused


def _has_binary(headers: pa.ChunkedArray) -> bool:
    """Return whether the headers of any message mark it as an event in binary mode."""
    if headers.null_count == len(headers):
        return False
    return any(pc.any(pc.equal(chunk.flatten().field("name"), "ce_specversion")).as_py() for chunk in headers.chunks)
