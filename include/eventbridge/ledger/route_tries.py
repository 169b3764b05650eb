"""Tries of slices by route in the ledger, counted before each try because a try may end its process."""

from __future__ import annotations

from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import route_tries as statements


class RouteTries(Database):
    """The part of the ledger about tries of slices that failed or never reported an end."""

    def begin_try(self, batch_id: str, slice_id: str, before: int = 0) -> int:
        """Count one more try of a slice and return the total; `slice_id` "" = of all remaining slices at once.

        `before`: tries of the same events that an earlier batch counted; they count from the first try on.
        """
        of = {"of_batch": batch_id, "of_slice": slice_id}
        with self._writing() as connection:
            connection.execute(statements.COUNT_SLICE, {"batch_id": batch_id, "slice_id": slice_id, "tries": before})
            connection.execute(statements.ADD_TRY, of | {"more": 1})
            return int(connection.execute(statements.TRIES_OF_SLICE, of).scalar_one())

    def take_back_try(self, batch_id: str, slice_id: str) -> None:
        """Take back a try that says nothing about its slice."""
        with self._writing() as connection:
            connection.execute(statements.ADD_TRY, {"of_batch": batch_id, "of_slice": slice_id, "more": -1})

    def tries(self, batch_id: str) -> dict[str, int]:
        """Return the counted tries by slice; a slice without any is absent."""
        with self._reading() as connection:
            rows = connection.execute(statements.TRIES, {"of_batch": batch_id})
            return {row.slice_id: row.tries for row in rows if row.tries > 0}
