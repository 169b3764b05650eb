"""The renderer of the form JSONATA: the JSON value of an expression for an event."""

from __future__ import annotations

import json
from datetime import UTC

from eventbridge.errors import TransformFailed
from eventbridge.event.cloudevent import Event
from eventbridge.transform.fill import JSON
from eventbridge.transform.jsonata.limits import UNDEFINED, VALUE
from eventbridge.transform.jsonata.process import EVALUATOR
from eventbridge.transform.rendered import Rendered, Scope


class JsonataRenderer:
    """The value of an expression whose input is the whole event; undefined is null, or a failure."""

    def __init__(self, expression: str, *, missing_is_error: bool) -> None:
        self._expression = expression.encode()
        self._missing_is_error = missing_is_error

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return the value as JSON; raises TransformFailed, also where time or memory is over, and BudgetSpent."""
        if scope.budget is not None:
            scope.budget.require()
        status, seconds, payload = EVALUATOR.ask(self._expression, _described(scope), event.body)
        if scope.budget is not None:
            scope.budget.charge(seconds)
        if status == VALUE:
            return Rendered(payload, JSON)
        if status == UNDEFINED:
            if self._missing_is_error:
                raise TransformFailed("the expression has no value for this event")
            return Rendered(b"null", JSON)
        raise TransformFailed(payload.decode())


def _described(scope: Scope) -> bytes:
    """Return what `$eb` is in an expression: the names that templates have as `eb.rule` and so on."""
    at = scope.ingested_at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    names = {"rule": scope.rule, "bus": scope.bus, "target": scope.target, "delivery_id": scope.delivery_id}
    return json.dumps({**names, "ingested_at": at}).encode()
