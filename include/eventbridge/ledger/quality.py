"""Quality in the ledger: rules that are on hold as an expectation failed, and the hours that were checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from eventbridge.decision.operational_event import OperationalEvent, of_rule_on_hold_by_expectation
from eventbridge.ledger.database import Database
from eventbridge.ledger.operations import queue_events
from eventbridge.ledger.statements import quality as statements
from eventbridge.model.expectation_hold import ExpectationHold
from eventbridge.model.quality import QualityCheck


def hold_by_expectation(connection: Connection, failed: Mapping[str, str], found_in: str, now: datetime) -> None:
    """Hold the rules that are not on hold already, by what failed of each, and queue an event for each of those."""
    for rule, detail in sorted(failed.items()):
        hold = ExpectationHold(rule, detail, found_in, now)
        if connection.execute(statements.HOLD_BY_EXPECTATION, vars(hold)).rowcount == 1:
            queue_events(connection, [of_rule_on_hold_by_expectation(hold)])


class Quality(Database):
    """The part of the ledger about quality."""

    def expectation_holds(self) -> dict[str, ExpectationHold]:
        """Return the rules that are on hold as an expectation failed, by name."""
        with self._reading() as connection:
            found = (ExpectationHold(**row._mapping) for row in connection.execute(statements.EXPECTATION_HOLDS))
            return {hold.rule: hold for hold in found}

    def drop_expectation_hold(self, rule: str) -> bool:
        """Note that deliveries of a rule may be sent again; False if it was not on hold."""
        with self._writing() as connection:
            return connection.execute(statements.DROP_EXPECTATION_HOLD, {"of_rule": rule}).rowcount == 1

    def note_quality_check(self, check: QualityCheck, failed: Mapping[str, str], told: OperationalEvent) -> bool:
        """Note the check of an hour, hold the rules of which it says what failed, and queue what is told of it.

        All in one transaction; False, and nothing changes, if the hour was checked already.
        """
        with self._writing() as connection:
            if connection.execute(statements.NOTE_QUALITY_CHECK, vars(check)).rowcount == 0:
                return False
            hold_by_expectation(connection, failed, check.hour.isoformat(), check.checked_at)
            queue_events(connection, [told])
            return True

    def quality_checks(self, limit: int = 100, before: datetime | None = None) -> list[QualityCheck]:
        """Return the checks of the latest hours, or of the latest before an hour, the latest first."""
        query = statements.quality_checks(limit, before)
        with self._reading() as connection:
            return [QualityCheck(**row._mapping) for row in connection.execute(query)]

    def quality_checks_of(self, hours: Sequence[datetime]) -> dict[datetime, QualityCheck]:
        """Return the checks of those of some hours that were checked, by hour."""
        with self._reading() as connection:
            rows = connection.execute(statements.QUALITY_CHECKS_OF, {"hours": list(hours)})
            return {row.hour: QualityCheck(**row._mapping) for row in rows}
