"""The expectations of a rule about its matched events."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from eventbridge.rules.frozen import FrozenModel


class Bounds(FrozenModel):
    """A range, both ends included; None = open."""

    at_least: float | None = None
    at_most: float | None = None

    def is_met_by(self, value: float) -> bool:
        """Return whether a value is within the range."""
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)


class FieldExpectation(FrozenModel):
    """The expectation about one field of the events of an hour.

    `null_rate` is the share of events in which it is missing or null; `value` bounds those that are numbers.
    """

    null_rate: Bounds | None = None
    value: Bounds | None = None


class Expect(FrozenModel):
    """The expectations about the events that a rule matches; None: none.

    Of each batch: `matches`, how many events; `dead_letter_rate`, dead letters per delivery that was settled for good;
    `transform_failure_rate`, failed transforms per delivery. Of each hour: `fields`, by path.
    """

    matches: Bounds | None = None
    dead_letter_rate: Bounds | None = None
    transform_failure_rate: Bounds | None = None
    fields: Mapping[str, FieldExpectation] = Field(default_factory=dict)
