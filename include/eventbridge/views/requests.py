"""Reads the requests and responses of a target: the stored request of a delivery, and the last responses."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.errors import StoreError
from eventbridge.event.ids import delivery_id_text
from eventbridge.event.json_text import bytes_as_text
from eventbridge.model import rowset
from eventbridge.model.why import DeliveryResult
from eventbridge.runtime.batch_files import newest_files
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.parquet import read_rows, read_table

#: The maximum number of segments of the newest pushes to read, and of responses to return.
MAX_FILES = 12
MAX_RESPONSES = 20
_COLUMNS = ["delivery_id", "rule", "target", "attempt", "started_at", "duration_ms", "outcome", "code", "reason"]


@dataclass(frozen=True)
class SentRequest:
    """The stored part of a request; credentials and signature are added when it is sent, and never stored."""

    headers: tuple[tuple[str, str], ...]
    payload: str


def find_sent_request(runtime: Runtime, deliveries: Iterable[DeliveryResult], delivery_id: str) -> SentRequest | None:
    """Return the request of one of an event's deliveries.

    Returns None if the request was not rendered, if its batch is not settled, or if the request is past its retention.
    """
    for each in deliveries:
        if each.delivery_id == delivery_id and each.file is not None and each.row is not None:
            columns = ["payload", "content_type", "headers"]
            try:
                (row,) = read_rows(runtime.store, each.file, rowset.encode([each.row]), columns).to_pylist()
            except StoreError:
                return None
            if row["payload"] is not None:
                return SentRequest(
                    _headers(delivery_id, row["content_type"], row["headers"]), bytes_as_text(row["payload"])
                )
    return None


def _headers(delivery_id: str, content_type: str | None, more: str | None) -> tuple[tuple[str, str], ...]:
    typed = [("content-type", content_type)] if content_type else []
    further: dict[str, str] = json.loads(more) if more else {}
    return (*typed, ("webhook-id", delivery_id), *further.items())


@dataclass(frozen=True)
class RecentResponse:
    """One attempt; `error` is "" if it had no error, `head` is the beginning of the response."""

    delivery_id: str
    attempt: int
    started_at: datetime
    duration_ms: float
    outcome: str
    code: int | None
    reason: str | None
    error: str
    head: str


@dataclass(frozen=True)
class RecentResponses:
    """The newest responses of a target, the last first, and the number of responses by minute and class.

    A class is the first digit of an HTTP status, 2 for an accepted delivery without one, and 0 for no response.
    """

    newest: tuple[RecentResponse, ...]
    classes: Counter[tuple[datetime, int]]


def recent_responses(runtime: Runtime, rule: str, target: str) -> RecentResponses:
    """Return the newest responses of a rule's target, from the newest MAX_FILES files.

    Unreadable files are skipped.
    """
    found: list[RecentResponse] = []
    classes: Counter[tuple[datetime, int]] = Counter()
    for file in islice(newest_files(runtime, "outcome", "all"), MAX_FILES):
        try:
            table = read_table(runtime.store, file.path, ["rule", "target", "attempt", "started_at", "code", "outcome"])
            own = pc.and_(pc.equal(table["rule"], rule), pc.equal(table["target"], target))
            rows = pc.indices_nonzero(pc.and_(own, pc.greater(table["attempt"], 0)))
            _count_classes(table.take(rows), classes)
            if len(rows) and len(found) < MAX_RESPONSES:
                found += _responses(runtime, file.path, rows.to_pylist())
        except StoreError:  # past its retention, or unreachable; the page of its batch shows which
            continue
    newest = sorted(found, key=lambda each: each.started_at, reverse=True)[:MAX_RESPONSES]
    return RecentResponses(tuple(newest), classes)


def _count_classes(attempts: pa.Table, classes: Counter[tuple[datetime, int]]) -> None:
    """Add the attempts of one file by minute and class; their groups are few, however many they are."""
    columns = {
        "minute": pc.floor_temporal(attempts["started_at"], unit="minute"),
        "class": pc.divide(attempts["code"].cast(pa.int64()), 100),
        "accepted": pc.equal(attempts["outcome"], "delivered"),
    }
    groups = pa.table(columns).group_by(list(columns)).aggregate([([], "count_all")])
    for each in groups.to_pylist():
        known = each["class"] if each["class"] is not None else 2 if each["accepted"] else 0
        classes[each["minute"], known] += each["count_all"]


def _responses(runtime: Runtime, path: str, rows: list[int]) -> list[RecentResponse]:
    table = read_rows(runtime.store, path, rowset.encode(rows), [*_COLUMNS, "error_class", "error", "response_head"])
    newest = pc.sort_indices(table, [("started_at", "descending")]).slice(0, MAX_RESPONSES)
    return [_response(row) for row in table.take(pa.array(newest)).to_pylist()]


def _response(row: dict[str, object]) -> RecentResponse:
    head, delivery = row["response_head"], row["delivery_id"]
    return RecentResponse(
        delivery_id=delivery_id_text(delivery) if isinstance(delivery, bytes) else "",
        error=": ".join(str(row[name]) for name in ("error_class", "error") if row[name]),
        head=head.decode("utf-8", "replace") if isinstance(head, bytes) else "",
        **{name: row[name] for name in ("attempt", "started_at", "duration_ms", "outcome", "code", "reason")},  # type: ignore[arg-type]
    )
