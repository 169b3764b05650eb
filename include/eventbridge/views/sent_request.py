"""The request of a delivery as it was routed: what is, or will be, sent to the target."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from eventbridge.errors import StoreError
from eventbridge.event.plain import text
from eventbridge.model import rowset
from eventbridge.model.why import DeliveryResult
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.parquet import read_rows


@dataclass(frozen=True)
class SentRequest:
    """The stored part of a request; credentials and signature are added when it is sent, and stored nowhere."""

    headers: tuple[tuple[str, str], ...]
    payload: str


def sent_request(runtime: Runtime, deliveries: Iterable[DeliveryResult], delivery_id: str) -> SentRequest | None:
    """Return the request of one of an event's deliveries.

    None: it was not rendered, its batch is not settled, or it is past its retention.
    """
    for each in deliveries:
        if each.delivery_id == delivery_id and each.file is not None and each.row is not None:
            columns = ["payload", "content_type", "headers"]
            try:
                (row,) = read_rows(runtime.store, each.file, rowset.encode([each.row]), columns).to_pylist()
            except StoreError:
                return None
            if row["payload"] is not None:
                return SentRequest(_headers(delivery_id, row["content_type"], row["headers"]), text(row["payload"]))
    return None


def _headers(delivery_id: str, content_type: str | None, more: str | None) -> tuple[tuple[str, str], ...]:
    typed = [("content-type", content_type)] if content_type else []
    further: dict[str, str] = json.loads(more) if more else {}
    return (*typed, ("webhook-id", delivery_id), *further.items())
