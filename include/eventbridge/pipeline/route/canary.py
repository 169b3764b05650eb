"""A built-in event and rule that always route: if they do not, a failure says nothing about other events."""

from __future__ import annotations

from functools import cached_property

from msgspec import structs

from eventbridge.errors import SparkError
from eventbridge.routing.job import RouteJob, Router, Slice
from eventbridge.routing.own_event import own_event, own_rules
from eventbridge.rules import Transform
from eventbridge.store import layout
from eventbridge.store.parquet import write_table
from eventbridge.store.protocol import Store
from eventbridge.store.rule_sets import freeze_rules

_NAME = "canary"
_EVENT = b'{"specversion": "1.0", "id": "canary", "source": "/canary", "type": "canary", "data": {"sings": true}}'


class Canary:
    """Routes one event by one rule through a router, on the same path as all other events of a job."""

    def __init__(self, store: Store, job: RouteJob, router: Router) -> None:
        self._store = store
        self._router = router
        self._slice = Slice(_NAME, layout.canary(), 0, 1)
        self._any_job = job

    @cached_property
    def _job(self) -> RouteJob:
        """The canary's job; puts the event and the rule into the store."""
        constant = Transform(form="CONSTANT", value="sings")
        rule_set = freeze_rules(self._store, own_rules(_NAME, {"type": [_NAME]}, {_NAME: constant}))
        if not self._store.exists(layout.canary()):
            write_table(self._store, layout.canary(), own_event(_NAME, _NAME, _EVENT), create=True)
        return structs.replace(self._any_job, rule_set=rule_set, bus=_NAME)

    def require(self, failure: SparkError | None = None) -> None:
        """Return if the event routes now.

        Otherwise raises `failure`, which is then an infrastructure failure, or the canary's own error; StoreError.
        """
        try:
            results = list(self._router.route_slices(self._job.another_try(), [self._slice]))
        except SparkError as error:
            raise (failure or error) from error
        if [(result.slice_id, result.rows) for result in results] != [(_NAME, 1)]:
            raise failure or SparkError("An event that every rule set routes was not routed. Look at Spark's log.")
