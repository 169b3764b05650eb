"""Fixtures of the Spark tests: a landed batch without any bus or ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from eventbridge.routing.job import RouteJob, Router, Slice, SliceResult
from eventbridge.rules import Bus, Rule, RuleSet, Transform
from eventbridge.store.open import open_store
from eventbridge.store.parquet import read_table, write_table
from eventbridge.store.protocol import Store
from eventbridge.store.rule_sets import freeze_rules
from eventbridge.store.schemas import BUFFER
from eventbridge.targets.file.fields import FileFields
from eventbridge.targets.http.fields import HttpFields

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
FILE = "buffer/bus=orders/date=2026-03-01/hour=12/landed.parquet"


def rules() -> RuleSet:
    """Rules of several operators and all forms of transform, one of which fails for some events."""
    ids = Transform(form="TEMPLATE", value={"id": "$.data.id"}, template='{"order": "${id}"}', missing="error")
    targets = {
        "crm": HttpFields(name="crm", url="https://crm.example/"),
        "id": FileFields(name="id", path="/tmp/id", transform=ids),
        "part": FileFields(name="part", path="/tmp/p", transform=Transform(form="JSONPATH", value="$.data")),
        "same": FileFields(name="same", path="/tmp/s", transform=Transform(form="CONSTANT", value="one")),
    }
    patterns: dict[str, dict[str, Any]] = {
        "big": {"data": {"amount": [{"numeric": [">", 500]}]}},
        "named": {"subject": [{"prefix": "7"}, {"wildcard": "*é*"}]},
        "no-id": {"data": {"id": [{"exists": False}]}},
    }
    made = {
        name: Rule(name=name, bus="orders", runner="orders", pattern=pattern, targets=targets)
        for name, pattern in patterns.items()
    }
    return RuleSet(buses={"orders": Bus(name="orders")}, rules=made)


@dataclass(frozen=True)
class Landed:
    """A batch as buffer leaves it, with its rules frozen; `job` names them."""

    store: Store
    job: RouteJob
    slices: list[Slice]

    def again(self, **changes: Any) -> RouteJob:
        """Return the job of another try."""
        attempt = f"try-{len(self.store.list('deliveries/'))}-{len(changes)}"
        return structs.replace(self.job, attempt=attempt, **changes)

    def routed(self, router: Router, **changes: Any) -> list[dict[str, Any]]:
        """Route all slices and return what does not depend on the router: rows and manifests by slice."""
        return self.comparable(router.route_slices(self.again(**changes), self.slices))

    def comparable(self, results: Iterator[SliceResult] | Sequence[SliceResult]) -> list[dict[str, Any]]:
        """Return the results in the order of slices, file contents in place of file names."""
        return [
            {
                "slice": result.slice_id,
                "rows": result.rows,
                "detail": None if result.detail is None else structs.replace(result.detail, cpu=0),
                "deliveries": None if result.path is None else read_table(self.store, result.path).to_pylist(),
            }
            for result in sorted(results, key=lambda result: result.slice_id)
        ]


@pytest.fixture
def land(tmp_path: Path) -> Callable[..., Landed]:
    """Land `count` events in slices of `step` rows, in a `store` that is a folder if none is given."""

    def make(count: int = 100, step: int = 25, store: Store | None = None) -> Landed:
        store = store or open_store(f"file://{tmp_path}/store")
        write_table(store, FILE, pa.Table.from_pylist([_row(number) for number in range(count)], schema=BUFFER))
        job = RouteJob(
            batch_id="019cfe00-0000-7000-8000-000000000000",
            runner="orders",
            bus="orders",
            rule_set=freeze_rules(store, rules()),
            planned_at=NOON,
            store_uri=store.uri,
            attempt="try",
            event_max_size=1 << 20,
            piece_max_deliveries=10,
            piece_max_bytes=1 << 20,
        )
        slices = [Slice(f"{start:06d}", FILE, start, min(start + step, count)) for start in range(0, count, step)]
        return Landed(store, job, slices)

    return make


def _row(number: int) -> dict[str, Any]:
    data = {"amount": number * 10} | ({} if number % 7 == 0 else {"id": str(number)})
    event = {"specversion": "1.0", "id": str(number), "source": "/shop", "type": "t", "subject": f"{number}é{number}"}
    body = b"bad" if number % 11 == 0 else json.dumps(event | {"data": data}, ensure_ascii=False).encode()
    return {
        "topic": "placed",
        "broker": "",
        "partition_id": 0,
        "offset": number,
        "message_id": str(number),
        "published_at": NOON,
        "arrived_at": NOON,
        "status": "malformed" if number % 11 == 0 else "duplicate" if number % 13 == 0 else "valid",
        "event_id": None if number % 11 == 0 else str(number),
        "source": None if number % 11 == 0 else "/shop",
        "type": None if number % 11 == 0 else "t",
        "body": body,
    }
