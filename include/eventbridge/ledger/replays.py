"""Replays in the ledger: requests to deliver archived events again, their positions, and the rows of each batch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Row

from eventbridge.errors import NotFoundError
from eventbridge.ledger.batches import record, to_batch
from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import batches as batch_statements
from eventbridge.ledger.statements import offsets as offset_statements
from eventbridge.ledger.statements import replays as statements
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.file_detail import LandedRange, decode_detail
from eventbridge.model.redelivery import ArchiveFile, Replay, Replayed, ReplayPart, ReplayPosition, ReplayState


class Replays(Database):
    """The part of the ledger about archived events that are delivered again."""

    def begin_replay(self, replay: Replay) -> Replay:
        """Add a replay and return it; if its run already has one, return that one."""
        values = vars(replay) | {
            "selection": dict(replay.selection),
            "parts": msgspec.to_builtins(replay.parts),
            "position": msgspec.to_builtins(replay.position),
        }
        with self._writing() as connection:
            connection.execute(offset_statements.TAKE_TURN)  # see `mark_kept`
            connection.execute(statements.BEGIN_REPLAY, values)
            return _to_replay(connection.execute(statements.REPLAY_OF_RUN, {"of_run": replay.run}).one())

    def replay(self, replay_id: str) -> Replay:
        """Return a replay; raises NotFoundError."""
        with self._reading() as connection:
            row = connection.execute(statements.REPLAY, {"of_replay": replay_id}).one_or_none()
        if row is None:
            raise NotFoundError(f"There is no replay {replay_id} in this ledger.")
        return _to_replay(row)

    def replay_of_run(self, run: str) -> Replay | None:
        """Return the replay that a run has begun; None if there is none."""
        with self._reading() as connection:
            row = connection.execute(statements.REPLAY_OF_RUN, {"of_run": run}).one_or_none()
        return None if row is None else _to_replay(row)

    def replays(self) -> list[Replay]:
        """Return all replays, newest first."""
        with self._reading() as connection:
            return [_to_replay(row) for row in connection.execute(statements.REPLAYS)]

    def keeps_delivery_ids(self, replay_id: str) -> bool:
        """Return whether deliveries of a replay keep their original ids; False for an id that is not a replay."""
        with self._reading() as connection:
            return connection.execute(statements.HAS_NEW_IDS, {"of_replay": replay_id}).scalar() is False

    def set_replay_state(self, replay_id: str, expected: ReplayState, to: ReplayState) -> bool:
        """Pause a running replay, or resume a paused one; return False if it is in another state."""
        change = {"of_replay": replay_id, "expected": expected, "to": to, "now": self.now()}
        with self._writing() as connection:
            return connection.execute(statements.SET_REPLAY_STATE, change).rowcount == 1

    def hand_over_replay(self, replay_id: str, run: str) -> bool:
        """Resume a paused replay for another run that has no replay; return False if it is not paused."""
        with self._writing() as connection:
            change = {"of_replay": replay_id, "to_run": run, "now": self.now()}
            return connection.execute(statements.HAND_OVER_REPLAY, change).rowcount == 1

    def defer_replay(self, replay_id: str, until: datetime) -> None:
        """Set the time before which the next batch of a replay is not planned."""
        with self._writing() as connection:
            connection.execute(statements.POSTPONE_REPLAY, {"of_replay": replay_id, "at": until})

    def left_replays(self, before: datetime) -> list[Replay]:
        """Return the replays that no process has attended to since a time, the longest unattended first.

        They are running, or have a batch that is not routed. Planning, waiting for or changing a replay attends to it.
        """
        with self._reading() as connection:
            return [_to_replay(row) for row in connection.execute(statements.LEFT_REPLAYS, {"before": before})]

    def end_replay(self, replay_id: str, state: ReplayState) -> bool:
        """Move a replay that has not ended to `done` or `cancelled`; return False if it has ended."""
        change = {"of_replay": replay_id, "to": state, "now": self.now()}
        with self._writing() as connection:
            return connection.execute(statements.END_REPLAY, change).rowcount == 1

    def move_replay(
        self,
        replay: Replay,
        position: ReplayPosition,
        next_at: datetime,
        taken: Sequence[Replayed],
        batch: Batch | None = None,
        file: BatchFile | None = None,
    ) -> bool:
        """Move a replay to a position, and record the rows it searched and the batch, if any, that takes some of them.

        Changes nothing and returns False if the replay is no longer running, or another process moved it from the
        position in `replay`. The next batch is planned not before `next_at`.
        """
        change = {
            "of_replay": replay.replay_id,
            "expected": replay.turn,
            "to": msgspec.to_builtins(position),
            "at": next_at,
        }
        with self._writing() as connection:
            if connection.execute(statements.MOVE_REPLAY, change).rowcount == 0:
                return False
            if batch is not None and file is not None:
                connection.execute(batch_statements.INSERT_BATCH, vars(batch))
                record(connection, file)
            if taken:
                connection.execute(statements.TAKE_EVENTS, [vars(each) for each in taken])
        return True

    def replayed(self, replay_id: str) -> list[Replayed]:
        """Return the rows that a replay has searched, in order of turns."""
        with self._reading() as connection:
            rows = connection.execute(statements.REPLAYED, {"of_replay": replay_id})
            return [Replayed(**row._mapping) for row in rows]

    def replayed_of(self, replay_id: str, file: str) -> list[Replayed]:
        """Return the rows of one archive file that a replay has searched, in order."""
        of = {"of_replay": replay_id, "of_file": file}
        with self._reading() as connection:
            return [Replayed(**row._mapping) for row in connection.execute(statements.REPLAYED_OF, of)]

    def replayed_by(self, batch_id: str) -> list[Replayed]:
        """Return the rows that a batch took."""
        with self._reading() as connection:
            rows = connection.execute(statements.REPLAYED_BY, {"of_batch": batch_id})
            return [Replayed(**row._mapping) for row in rows]

    def open_replay_batches(self, replay_id: str) -> list[Batch]:
        """Return the uncommitted batches of a replay."""
        with self._reading() as connection:
            rows = connection.execute(statements.OPEN_REPLAY_BATCHES, {"of_replay": replay_id})
            return [to_batch(row) for row in rows]

    def archive_rule_sets(self, bus: str, since: datetime, until: datetime, before: datetime) -> list[tuple[str, str]]:
        """Return the runners that landed events of a bus, with the rule sets of their batches; see `archive_files`."""
        times = {"of_bus": bus, "since": since, "until": until, "before": before}
        with self._reading() as connection:
            return [(row.runner, row.rule_set) for row in connection.execute(statements.ARCHIVE_RULE_SETS, times)]

    def archive_files(
        self,
        bus: str,
        since: datetime,
        until: datetime,
        before: datetime,
        *,
        runner: str | None = None,
        limit: int | None = None,
    ) -> list[ArchiveFile]:
        """Return the archive files of batches planned from `since` (included) to `until` (excluded), oldest first.

        Only batches committed before a time count, so that the result never changes. `runner` None: of all.
        """
        times = {"of_bus": bus, "since": since, "until": until, "before": before}
        with self._reading() as connection:
            rows = connection.execute(statements.archive_files(runner, limit), times).all()
        return [_to_archive_file(row) for row in rows]


def _to_replay(row: Row[Any]) -> Replay:
    values = dict(row._mapping)
    values["parts"] = msgspec.convert(values["parts"], tuple[ReplayPart, ...])
    values["position"] = msgspec.convert(values["position"], ReplayPosition)
    return Replay(**values)


def _to_archive_file(row: Row[Any]) -> ArchiveFile:
    landed = decode_detail(row.detail)
    assert isinstance(landed, LandedRange), "a normal batch's buffer files are landed"
    return ArchiveFile(
        path=row.path,
        rows=row.rows,
        batch_id=row.batch_id,
        runner=row.runner,
        rule_set=row.rule_set,
        planned_at=row.planned_at,
        partition=landed.partition,
        start=landed.start,
        end=landed.end,
    )
