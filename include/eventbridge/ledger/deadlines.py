"""Deadlines of pending deliveries in the ledger: releasing late ones, and reporting those that are running late."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from eventbridge.ledger.database import Database
from eventbridge.ledger.operations import queue_events
from eventbridge.ledger.statements import pending as statements
from eventbridge.model.pending import RunningLate
from eventbridge.policy.operational_event import OperationalEvent


class Deadlines(Database):
    """The part of the ledger about deliveries of targets with `deliver_within`."""

    def release_missed(self, rule: str, target: str, before: datetime) -> int:
        """Make waiting deliveries of a target published by `before` due, to be dead-lettered; return how many rows."""
        of = {"of_rule": rule, "of_target": target, "before": before, "now": self.now()}
        with self._writing() as connection:
            return connection.execute(statements.RELEASE_MISSED, of).rowcount

    def report_running_late(
        self, rule: str, target: str, before: datetime, event_of: Callable[[RunningLate], OperationalEvent]
    ) -> int:
        """Queue the event for waiting deliveries of a target published by `before`, once each; return their number."""
        of = {"of_rule": rule, "of_target": target, "before": before, "now": self.now()}
        with self._reading() as connection:
            if connection.execute(statements.RUNNING_LATE.limit(1), of).first() is None:
                return 0
        with self._writing() as connection:
            rows = connection.execute(statements.RUNNING_LATE, of).all()
            if not rows:
                return 0
            connection.execute(statements.NOTE_REPORTED, of)
            waits_for = tuple(sorted({row.held or row.reason for row in rows}))
            late = RunningLate(sum(row.deliveries for row in rows), min(row.published_at for row in rows), waits_for)
            queue_events(connection, [event_of(late)])
            return late.count
