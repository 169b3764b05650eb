"""The index of event ids in the ledger: its files, and which batches are in it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

from eventbridge.ledger.batches import to_batch
from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import event_index as statements
from eventbridge.model.batch import Batch
from eventbridge.model.file_detail import LandedRange, decode_detail
from eventbridge.model.storage import ArchivedBatches, IndexedFile, IndexFile

_EVER = {"since": datetime(1970, 1, 1, tzinfo=UTC), "until": datetime(9999, 1, 1, tzinfo=UTC)}
_IDS_AT_ONCE = 500


class _Lost(Exception):
    """Another process was first; the transaction is rolled back."""


class EventIndex(Database):
    """The part of the ledger about the index of event ids."""

    def index_files(self, since: datetime | None = None, until: datetime | None = None) -> list[IndexFile]:
        """Return the files of the index, of days that begin within a period or of all days."""
        times = {"since": since or _EVER["since"], "until": until or _EVER["until"]}
        with self._reading() as connection:
            return [IndexFile(**row._mapping) for row in connection.execute(statements.INDEX_FILES, times)]

    def unindexed_batches(self, since: datetime, until: datetime) -> list[Batch]:
        """Return the normal batches planned within a period that have their archive and are not in the index."""
        times = {"since": since, "until": until}
        with self._reading() as connection:
            found = connection.execute(statements.unindexed(committed=False, limited=False), times)
            return [to_batch(row) for row in found]

    def batches_to_index(self, limit: int) -> list[Batch]:
        """Return committed normal batches that have an archive which is not in the index, oldest first."""
        with self._reading() as connection:
            found = connection.execute(statements.unindexed(committed=True, limited=True), _EVER | {"most": limit})
            return [to_batch(row) for row in found]

    def archive_of(self, batch_ids: Sequence[str]) -> list[tuple[IndexedFile, bool]]:
        """Return the archive files of batches, each with True if it has messages that are not events."""
        with self._reading() as connection:
            rows = connection.execute(statements.ARCHIVE_OF, {"ids": list(batch_ids)}).all()
        return [(IndexedFile(row.batch_id, row.path), _has_malformed(row.detail)) for row in rows]

    def publish_index(self, file: IndexFile, batch_ids: Collection[str], instead_of: Sequence[IndexFile]) -> bool:
        """Add a file, record that batches are in it, and delete the records of files that it replaces: all or nothing.

        Returns False if one of the batches is already in the index, or one of the files no longer exists.
        """
        ids = sorted(batch_ids)
        try:
            with self._writing() as connection:
                for start in range(0, len(ids), _IDS_AT_ONCE):
                    some = ids[start : start + _IDS_AT_ONCE]
                    if connection.execute(statements.MARK_INDEXED, {"ids": some}).rowcount != len(some):
                        raise _Lost
                if instead_of:
                    paths = [each.path for each in instead_of]
                    if connection.execute(statements.DROP_INDEX_FILES, {"paths": paths}).rowcount != len(paths):
                        raise _Lost
                connection.execute(statements.ADD_INDEX_FILE, vars(file))
        except _Lost:
            return False
        return True

    def drop_index(self, day: datetime) -> None:
        """Delete the records of index files of a day without an archive."""
        with self._writing() as connection:
            connection.execute(statements.DROP_INDEX_OF_DAY, {"of_day": day})

    def forget_index(self, day: datetime) -> None:
        """Delete the index records of a day: its batches are searched directly until they are indexed again."""
        with self._writing() as connection:
            connection.execute(statements.DROP_INDEX_OF_DAY, {"of_day": day})
            connection.execute(statements.MARK_UNINDEXED, {"since": day, "until": day + timedelta(days=1)})

    def has_archive(self, since: datetime, until: datetime) -> bool:
        """Return whether any batch planned within a period has its archive."""
        with self._reading() as connection:
            return connection.execute(statements.ONE_ARCHIVED, {"since": since, "until": until}).first() is not None

    def archived_batches(self, since: datetime, until: datetime, bus: str = "") -> ArchivedBatches:
        """Return a summary of the normal batches planned within a period, of one bus or ("") of all."""
        statement = statements.ARCHIVED_BATCHES_OF_BUS if bus else statements.ARCHIVED_BATCHES
        with self._reading() as connection:
            row = connection.execute(
                statement, {"since": since, "until": until, **({"of_bus": bus} if bus else {})}
            ).one()
        return ArchivedBatches(row.batches, int(row.pruned), row.oldest, row.newest)


def _has_malformed(detail: str) -> bool:
    landed = decode_detail(detail)
    return not isinstance(landed, LandedRange) or landed.malformed > 0
