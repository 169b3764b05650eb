"""An event and a rule of our own that always route: where they do not, no failure says anything about an event."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property

import pyarrow as pa
from msgspec import structs

from eventbridge.errors import SparkError
from eventbridge.routing.job import RouteJob, Router, Slice
from eventbridge.rule import Bus, Rule, RuleSet, Transform
from eventbridge.store import layout
from eventbridge.store.parquet import write_table
from eventbridge.store.protocol import Store
from eventbridge.store.rule_sets import freeze_rules
from eventbridge.store.schemas import BUFFER
from eventbridge.targets.file.fields import FileFields

_NAME = "canary"
_LANDED_AT = datetime(2026, 1, 1, tzinfo=UTC)
_EVENT = b'{"specversion": "1.0", "id": "canary", "source": "/canary", "type": "canary", "data": {"sings": true}}'


class Canary:
    """Routes one event by one rule through a router, on the same path as every other event of a job."""

    def __init__(self, store: Store, job: RouteJob, router: Router) -> None:
        self._store = store
        self._router = router
        self._slice = Slice(_NAME, layout.canary(), 0, 1)
        self._any_job = job

    @cached_property
    def _job(self) -> RouteJob:
        """Put the event and the rule into the store."""
        rule_set = freeze_rules(self._store, _rules())
        if not self._store.exists(layout.canary()):
            write_table(self._store, layout.canary(), pa.Table.from_pylist([_row()], schema=BUFFER), create=True)
        return structs.replace(self._any_job, rule_set=rule_set, bus=_NAME)

    def require(self, failure: SparkError | None = None) -> None:
        """Return if the event routes now.

        Otherwise raises `failure`, which is then our infrastructure's, or what the canary itself met; StoreError.
        """
        try:
            results = list(self._router.route_slices(self._job.another_try(), [self._slice]))
        except SparkError as error:
            raise (failure or error) from error
        if [(result.slice_id, result.rows) for result in results] != [(_NAME, 1)]:
            raise failure or SparkError("An event that every rule set routes was not routed. Look at Spark's log.")


def _rules() -> RuleSet:
    constant = Transform(form="CONSTANT", value="sings")
    target = FileFields(name=_NAME, path="canary.jsonl", transform=constant)
    rule = Rule(name=_NAME, bus=_NAME, runner=_NAME, pattern={"type": [_NAME]}, targets={_NAME: target})
    return RuleSet(buses={_NAME: Bus(name=_NAME)}, rules={_NAME: rule})


def _row() -> dict[str, object]:
    return {
        "topic": _NAME,
        "broker": "",
        "queue_id": 0,
        "offset": 0,
        "message_id": _NAME,
        "published_at": _LANDED_AT,
        "arrived_at": _LANDED_AT,
        "status": "valid",
        "event_id": _NAME,
        "source": "/canary",
        "type": _NAME,
        "body": _EVENT,
    }
