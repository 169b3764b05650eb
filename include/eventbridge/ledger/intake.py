"""Intake in the ledger: whether new events are taken."""

from __future__ import annotations

from eventbridge.decision.operational_event import of_intake_resumed, of_intake_stopped
from eventbridge.ledger.database import Database
from eventbridge.ledger.operations import queue_events
from eventbridge.ledger.statements import intake as statements
from eventbridge.model.intake_stop import IntakeStop, StopCause


class Intake(Database):
    """The part of the ledger about intake."""

    def intake_stop(self) -> IntakeStop | None:
        """Return why no new events are taken, None while they are."""
        with self._reading() as connection:
            row = connection.execute(statements.INTAKE_STOP).one_or_none()
            return None if row is None else IntakeStop(**row._mapping)

    def stop_intake(self, reason: str, cause: StopCause) -> bool:
        """Note that no new events are taken, and queue the event that tells of it; False if it was stopped."""
        stop = IntakeStop(reason, self.now(), cause)
        with self._writing() as connection:
            if connection.execute(statements.STOP_INTAKE, {"singleton": 1, **vars(stop)}).rowcount == 0:
                return False
            queue_events(connection, [of_intake_stopped(stop)])
            return True

    def resume_intake(self) -> bool:
        """Note that new events are taken again, and queue the event that tells of it; False if they were."""
        now = self.now()
        with self._writing() as connection:
            row = connection.execute(statements.INTAKE_STOP).one_or_none()
            if row is None or connection.execute(statements.RESUME_INTAKE).rowcount == 0:
                return False
            queue_events(connection, [of_intake_resumed(IntakeStop(**row._mapping), now)])
            return True
