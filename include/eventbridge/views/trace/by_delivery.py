"""Finds the event of a delivery by the delivery id, which targets see as `webhook-id`.

A delivery id is a hash without an index: the newest delivery files are searched, MOST_FILES at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.errors import StoreError
from eventbridge.event.ids import delivery_id_text
from eventbridge.model import rowset
from eventbridge.runtime.newest_files import newest_files
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.parquet import read_rows, read_table

#: Delivery files that one search reads at most: two seconds on a local disk.
MOST_FILES = 2_000

_DELIVERY_VERSION = 8


@dataclass(frozen=True)
class DeliverySearch:
    """The result of a search for a delivery.

    `event_id`, `rule`, `target`: of the delivery, None if it was not found. `oldest`: when the oldest batch was planned
    that was searched, None if there was none. `unreadable`: the errors of files that could not be read.
    """

    event_id: str | None
    rule: str | None
    target: str | None
    oldest: datetime | None
    unreadable: tuple[str, ...]


def delivery_bytes(text: str) -> bytes | None:
    """Return the bytes of a delivery id in UUID form, None for any other text."""
    try:
        found = UUID(text)
    except ValueError:
        return None
    return found.bytes if found.version == _DELIVERY_VERSION and text.lower() == str(found) else None


def find_delivery(runtime: Runtime, delivery: bytes, since: datetime, until: datetime) -> DeliverySearch:
    """Search the delivery files of batches planned from `since` to before `until`, the newest first."""
    wanted = pa.scalar(delivery, pa.binary(16))
    oldest: datetime | None = None
    unreadable: list[str] = []
    for file in islice(newest_files(runtime, "delivery", "all"), MOST_FILES):
        if file.planned_at < since:
            break
        if file.planned_at >= until:
            continue
        oldest = file.planned_at
        try:
            row = pc.index(read_table(runtime.store, file.path, ["delivery_id"])["delivery_id"], wanted).as_py()
            if row < 0:
                continue
            found = read_rows(
                runtime.store, file.path, rowset.encode([row]), ["event_id", "rule", "target"]
            ).to_pylist()
        except StoreError as error:
            unreadable.append(f"batch {file.batch_id}: {error}")
            continue
        return DeliverySearch(**found[0], oldest=oldest, unreadable=tuple(unreadable))
    return DeliverySearch(None, None, None, oldest, tuple(unreadable))


def note_of(delivery: bytes, found: DeliverySearch) -> str:
    """Return a sentence with the delivery by which the event was found."""
    return f"delivery {delivery_id_text(delivery)} is of event {found.event_id}, to {found.rule}/{found.target}"
