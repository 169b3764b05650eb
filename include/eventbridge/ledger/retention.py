"""Retention in the ledger: expired batches, needs that keep them, marks of what is kept, gradual deletion of rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection, Delete

from eventbridge.ledger.batches import to_batch
from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import offsets as offset_statements
from eventbridge.ledger.statements import retention as statements
from eventbridge.ledger.store_sizes import take_size
from eventbridge.model.batch import Batch, FileKind
from eventbridge.model.storage import STEPS, BatchGroup, BatchPlace, Kept, Need, SweepName, is_kept

#: Rows that one transaction deletes: other writers wait for it, some milliseconds.
ROWS_AT_ONCE = 200


class Retention(Database):
    """The part of the ledger about retention. Its transactions are small, so that deliveries hardly wait for them."""

    def batch_groups(self, kept: Kept) -> list[BatchGroup]:
        """Return the runners and buses with batches of which `kept` is kept; the cost grows with these, not batches."""
        with self._reading() as connection:
            return [BatchGroup(row.runner, row.bus) for row in connection.execute(statements.groups(kept))]

    def expired_batches(
        self, kept: Kept, group: BatchGroup, before: datetime, behind: BatchPlace | None = None, *, limit: int = 100
    ) -> list[Batch]:
        """Return committed batches of a group planned before a time, from an index of exactly these.

        Whole batches come newest first, because a batch goes before the batch whose rows it took; the others come
        oldest first. `behind`: only batches after that place.
        """
        values = {"of_kept": kept, "of_runner": group.runner, "of_bus": group.bus, "most": limit, "before": before}
        if behind is not None:
            values |= {"at": behind.planned_at, "of_batch": behind.batch_id}
        statement = statements.expired(newest_first=kept == "all", behind=behind is not None)
        with self._reading() as connection:
            return [to_batch(row) for row in connection.execute(statement, values)]

    def uncleared_batches(self, limit: int = 100) -> list[Batch]:
        """Return batches whose files retention has not removed completely."""
        with self._reading() as connection:
            return [to_batch(row) for row in connection.execute(statements.UNCLEARED_BATCHES, {"most": limit})]

    def open_requests(self) -> set[str]:
        """Return the ids of the replays and redrives that have not ended."""
        with self._reading() as connection:
            return _open_requests(connection)

    def needs_of(self, batch: Batch) -> list[Need]:
        """Return the needs that keep records of a committed batch, as far as the ledger's rows show."""
        of = {"of_batch": batch.batch_id}
        group = of | {"of_runner": batch.runner, "of_bus": batch.bus, "of_kind": batch.kind, "at": batch.planned_at}
        found = []
        with self._reading() as connection:
            if batch.kept == "all":
                if batch.kind == "normal" and batch.bus_committed_at is None:
                    found.append(Need("all", "its bus was not told of it"))
                if connection.execute(statements.WAITS, of).first() is not None:
                    found.append(Need("all", "something of it waits"))
                if connection.execute(statements.WHOLE_TAKER, of).first() is not None:
                    found.append(Need("all", "a younger batch took up something of it"))
            if is_kept(batch.kept, "dead_letters") and connection.execute(statements.WHOLE_REDRIVE, of).first():
                found.append(Need("dead_letters", "a younger batch took dead letters of it"))
            if connection.execute(statements.NAMED_AS_TAKER, of).first() is not None:
                found.append(Need("manifest", "it took up something of a batch that is kept"))
            if connection.execute(statements.LATER_BATCH, group).first() is None:
                found.append(Need("manifest", "it is the newest of its runner"))
            # The remaining batches of a runner have no hole, so that an audit can follow its offsets.
            if batch.kind == "normal" and connection.execute(statements.EARLIER_BATCH, group).first() is not None:
                found.append(Need("manifest", "an older one of its runner is kept"))
        return found

    def mark_kept(self, batch: Batch, kept: Kept, known_requests: Collection[str]) -> bool:
        """Mark what is kept of a committed batch from now on; its other files and rows are removed after that.

        Returns False, and changes nothing, if the batch has changed since it was read, or if a replay or redrive has
        begun that is not among `known_requests`: it may need records that would be removed.
        """
        change = {"of_batch": batch.batch_id, "expected": batch.kept, "to": kept}
        with self._writing() as connection:
            connection.execute(offset_statements.TAKE_TURN)  # a replay or redrive that begins now waits or is seen
            if not _open_requests(connection) <= set(known_requests):
                return False
            return connection.execute(statements.MARK_KEPT, change).rowcount == 1

    def pruned_at(self, bus: str, since: datetime, until: datetime, what: Kept) -> datetime | None:
        """Return when the newest normal batch of a bus and period that lost `what` was planned; None: none lost it."""
        enough = [each for each in STEPS if is_kept(each, what)]
        times = {"of_bus": bus, "since": since, "until": until, "enough": enough}
        with self._reading() as connection:
            return connection.execute(statements.PRUNED_ARCHIVE, times).scalar()

    def paths(self, batch_id: str) -> list[tuple[FileKind, str]]:
        """Return the recorded files of a batch, with their kinds."""
        with self._reading() as connection:
            return [(row.kind, row.path) for row in connection.execute(statements.PATHS, {"of_batch": batch_id})]

    def clear_rows(self, batch: Batch) -> int:
        """Delete the rows that a marked batch does not keep, and record that it is cleared; return how many.

        Call it after the files are removed. If a batch keeps nothing, its own row is deleted last.
        """
        going = STEPS[STEPS.index(batch.cleared) : STEPS.index(batch.kept)]
        dropped = self._drop_all(
            [each for what in going for each in statements.DROPS[what]], {"of_batch": batch.batch_id}
        )
        with self._writing() as connection:
            take_size(connection, batch)
            if batch.kept == "nothing":
                connection.execute(statements.DROP_BATCH, {"of_batch": batch.batch_id})
            else:
                change = {"of_batch": batch.batch_id, "expected": batch.cleared, "to": batch.kept}
                connection.execute(statements.MARK_CLEARED, change)
        return dropped

    def rule_set_is_named(self, rule_set: str, but_by: str = "") -> bool:
        """Return whether anything but this batch names a frozen rule set: the one in force, a batch, a replay ..."""
        with self._reading() as connection:
            names = {"of_rules": rule_set, "of_batch": but_by}
            return bool(connection.execute(statements.RULE_SET_NAMED, names).scalar())

    def drop_rule_changes(self, before: datetime) -> tuple[int, set[str]]:
        """Delete superseded changes of rules before a time; return how many, and their rule sets."""
        count = 0
        rule_sets: set[str] = set()
        while True:
            with self._writing() as connection:
                chosen = {"at": before, "most": ROWS_AT_ONCE}
                rows = connection.execute(statements.OLD_RULE_CHANGES, chosen).all()
                if not rows:
                    return count, rule_sets
                connection.execute(statements.DROP_RULE_CHANGES, {"ids": [row.change_id for row in rows]})
            count += len(rows)
            rule_sets |= {row.rule_set for row in rows}

    def drop_ended_requests(self, before: datetime) -> int:
        """Forget replays and redrives that ended before a time, the latter once letters are gone; return how many."""
        with self._reading() as connection:
            old = connection.execute(statements.OLD_REPLAYS, {"at": before, "most": ROWS_AT_ONCE}).scalars().all()
        dropped = 0
        for replay_id in old:
            self._drop_all([statements.DROP_REPLAYED], {"of_replay": replay_id})
            with self._writing() as connection:
                dropped += connection.execute(statements.DROP_REPLAY, {"of_replay": replay_id}).rowcount
        with self._writing() as connection:
            return dropped + connection.execute(statements.DROP_REDRIVES, {"at": before}).rowcount

    def swept_through(self, name: SweepName) -> datetime | None:
        """Return the planning time up to which the files of batches were swept; None: none were."""
        with self._reading() as connection:
            return connection.execute(statements.SWEPT, {"of_sweep": name}).scalar()

    def move_sweep(self, name: SweepName, through: datetime) -> None:
        """Record that the files of batches planned before a time were swept; the time never moves back."""
        with self._writing() as connection:
            connection.execute(statements.NOTE_SWEEP, {"name": name, "through": through})
            connection.execute(statements.MOVE_SWEEP, {"of_sweep": name, "at": through})

    def first_batch_at(self, since: datetime) -> datetime | None:
        """Return when the first batch at or after a time was planned; None: there is none."""
        with self._reading() as connection:
            return connection.execute(statements.FIRST_BATCH, {"at": since}).scalar()

    def _drop_all(self, deletes: Sequence[Delete], names: Mapping[str, str]) -> int:
        """Run each statement until it finds no more rows, in transactions that delete few rows; return how many."""
        dropped = 0
        left = list(deletes)
        while left:
            with self._writing() as connection:
                room = ROWS_AT_ONCE
                while left and room:
                    count = connection.execute(left[0], {**names, "most": room}).rowcount
                    dropped, room = dropped + count, room - count
                    if room:
                        left.pop(0)
        return dropped


def _open_requests(connection: Connection) -> set[str]:
    return set(connection.execute(statements.OPEN_REQUESTS).scalars())
