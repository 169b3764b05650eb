"""Records checks of quality in the ledger: rules on hold after a failed expectation, and the hours checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import sqlalchemy as sa

from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import Message, UtcTime, insert_or_skip, metadata
from eventbridge.ledger.operational_events import queue_events
from eventbridge.model.quality import QualityCheck
from eventbridge.model.rule_state import ExpectationHold
from eventbridge.policy.operational_event import OperationalEvent, expectation_hold_event

#: A rule whose deliveries are on hold until an operator releases it.
expectation_hold = sa.Table(
    "expectation_hold",
    metadata,
    sa.Column("rule", sa.Text, primary_key=True),
    sa.Column("detail", Message, nullable=False),
    sa.Column("found_in", sa.Text, nullable=False),
    sa.Column("since", UtcTime, nullable=False),
)

#: The hours that were checked, each once; an hour with 0 `failures` passed. `record` is the path of the findings in the
#: store.
quality_check = sa.Table(
    "quality_check",
    metadata,
    sa.Column("hour", UtcTime, primary_key=True),
    sa.Column("checked_at", UtcTime, nullable=False),
    sa.Column("measures", sa.Integer, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("record", sa.Text, nullable=False),
)

#: Releases a rule.
DROP_EXPECTATION_HOLD = sa.delete(expectation_hold).where(expectation_hold.c.rule == sa.bindparam("of_rule"))


def select_checks(limit: int, before: datetime | None) -> sa.Select[tuple[object, ...]]:
    """Return the query for the checks of the latest hours, latest first; only those before `before`, if set."""
    found = sa.select(quality_check).order_by(quality_check.c.hour.desc()).limit(limit)
    return found if before is None else found.where(quality_check.c.hour < before)


#: The checks of some hours.
QUALITY_CHECKS_OF = sa.select(quality_check).where(quality_check.c.hour.in_(sa.bindparam("hours", expanding=True)))


class Quality(Aggregate):
    """Failed expectations and checked hours."""

    def holds(self) -> dict[str, ExpectationHold]:
        """Return the rules that are on hold after a failed expectation, by name."""
        rows = self._rows(sa.select(expectation_hold).order_by(expectation_hold.c.rule))
        return {row.rule: ExpectationHold(**row._mapping) for row in rows}

    def release(self, rule: str) -> bool:
        """Release a rule, so that its deliveries are sent again; return False if it was not on hold."""
        return self._change(DROP_EXPECTATION_HOLD, {"of_rule": rule}) == 1

    def record_check(self, check: QualityCheck, failed: Mapping[str, str], event: OperationalEvent) -> bool:
        """Record the check of an hour, put the rules with failed expectations on hold, and queue the operational event.

        All of this happens in one transaction. Returns False, and changes nothing, if the hour was already checked.
        """
        with self._writing() as connection:
            if connection.execute(insert_or_skip(quality_check), vars(check)).rowcount == 0:
                return False
            hold_by_expectation(connection, failed, check.hour.isoformat(), check.checked_at)
            queue_events(connection, [event])
            return True

    def checks(self, limit: int = 100, before: datetime | None = None) -> list[QualityCheck]:
        """Return the checks of the latest hours, at most `limit`, latest first; only those before `before`, if set."""
        query = select_checks(limit, before)
        return [QualityCheck(**row._mapping) for row in self._rows(query)]

    def checks_of_hours(self, hours: Sequence[datetime]) -> dict[datetime, QualityCheck]:
        """Return the checks of the given hours, by hour; an hour that was not checked is absent."""
        return {row.hour: QualityCheck(**row._mapping) for row in self._rows(QUALITY_CHECKS_OF, {"hours": list(hours)})}


def hold_by_expectation(connection: sa.Connection, failed: Mapping[str, str], found_in: str, now: datetime) -> None:
    """Put rules on hold for their failed expectations, and queue an event for each that was not already on hold."""
    for rule, detail in sorted(failed.items()):
        hold = ExpectationHold(rule, detail, found_in, now)
        if connection.execute(insert_or_skip(expectation_hold), vars(hold)).rowcount == 1:
            queue_events(connection, [expectation_hold_event(hold)])
