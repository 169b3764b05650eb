"""Quality in the ledger: rules that are on hold after a failed expectation, and the hours that were checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from eventbridge.ledger.database import Database
from eventbridge.ledger.operations import queue_events
from eventbridge.ledger.statements import quality as statements
from eventbridge.model.quality import QualityCheck
from eventbridge.model.rule_state import ExpectationHold
from eventbridge.policy.operational_event import OperationalEvent, of_rule_on_hold_by_expectation


def hold_by_expectation(connection: Connection, failed: Mapping[str, str], found_in: str, now: datetime) -> None:
    """Put rules on hold for their failed expectations, and queue an event for each that was not already on hold."""
    for rule, detail in sorted(failed.items()):
        hold = ExpectationHold(rule, detail, found_in, now)
        if connection.execute(statements.HOLD_BY_EXPECTATION, vars(hold)).rowcount == 1:
            queue_events(connection, [of_rule_on_hold_by_expectation(hold)])


class Quality(Database):
    """The part of the ledger about quality."""

    def expectation_holds(self) -> dict[str, ExpectationHold]:
        """Return the rules that are on hold after a failed expectation, by name."""
        with self._reading() as connection:
            found = (ExpectationHold(**row._mapping) for row in connection.execute(statements.EXPECTATION_HOLDS))
            return {hold.rule: hold for hold in found}

    def drop_expectation_hold(self, rule: str) -> bool:
        """Release a rule, so that its deliveries are sent again; return False if it was not on hold."""
        with self._writing() as connection:
            return connection.execute(statements.DROP_EXPECTATION_HOLD, {"of_rule": rule}).rowcount == 1

    def note_quality_check(self, check: QualityCheck, failed: Mapping[str, str], told: OperationalEvent) -> bool:
        """Record the check of an hour, put the rules with failed expectations on hold, and queue its operational event.

        All in one transaction; returns False, and changes nothing, if the hour was already checked.
        """
        with self._writing() as connection:
            if connection.execute(statements.NOTE_QUALITY_CHECK, vars(check)).rowcount == 0:
                return False
            hold_by_expectation(connection, failed, check.hour.isoformat(), check.checked_at)
            queue_events(connection, [told])
            return True

    def quality_checks(self, limit: int = 100, before: datetime | None = None) -> list[QualityCheck]:
        """Return the checks of the latest hours, or of the latest before an hour, latest first."""
        query = statements.quality_checks(limit, before)
        with self._reading() as connection:
            return [QualityCheck(**row._mapping) for row in connection.execute(query)]

    def quality_checks_of(self, hours: Sequence[datetime]) -> dict[datetime, QualityCheck]:
        """Return the checks of the given hours, by hour; an hour that was not checked is absent."""
        with self._reading() as connection:
            rows = connection.execute(statements.QUALITY_CHECKS_OF, {"hours": list(hours)})
            return {row.hour: QualityCheck(**row._mapping) for row in rows}
