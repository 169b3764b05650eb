"""Ingestion in the ledger: whether runners take new events."""

from __future__ import annotations

from eventbridge.ledger.database import Database
from eventbridge.ledger.operations import queue_events
from eventbridge.ledger.statements import ingestion as statements
from eventbridge.model.storage import IngestionStop, StopCause
from eventbridge.policy.operational_event import of_ingestion_resumed, of_ingestion_stopped


class Ingestion(Database):
    """The part of the ledger about ingestion."""

    def ingestion_stop(self) -> IngestionStop | None:
        """Return why ingestion is stopped; None if it is not."""
        with self._reading() as connection:
            row = connection.execute(statements.INGESTION_STOP).one_or_none()
            return None if row is None else IngestionStop(**row._mapping)

    def stop_ingestion(self, reason: str, cause: StopCause) -> bool:
        """Stop ingestion and queue the event that reports it; return False if it was already stopped."""
        stop = IngestionStop(reason, self.now(), cause)
        with self._writing() as connection:
            if connection.execute(statements.STOP_INGESTION, {"singleton": 1, **vars(stop)}).rowcount == 0:
                return False
            queue_events(connection, [of_ingestion_stopped(stop)])
            return True

    def resume_ingestion(self) -> bool:
        """Resume ingestion and queue the event that reports it; return False if it was not stopped."""
        now = self.now()
        with self._writing() as connection:
            row = connection.execute(statements.INGESTION_STOP).one_or_none()
            if row is None or connection.execute(statements.RESUME_INGESTION).rowcount == 0:
                return False
            queue_events(connection, [of_ingestion_resumed(IngestionStop(**row._mapping), now)])
            return True
