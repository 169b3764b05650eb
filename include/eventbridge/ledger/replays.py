"""Stores replays in the ledger: requests to redeliver archived events, their positions, and the rows of each batch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa

from eventbridge.errors import NotFoundError
from eventbridge.ledger.batches import INSERT_BATCH, UNCOMMITTED, batch, to_batch
from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import JsonText, UtcTime, insert, insert_or_skip, metadata, one_of
from eventbridge.ledger.files import record_file
from eventbridge.ledger.revision import TAKE_TURN
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.redelivery import Replay, Replayed, ReplayPart, ReplayPosition, ReplayState

#: Requests to redeliver archived events; `run` names the Airflow run or the command that made the request.
replay = sa.Table(
    "replay",
    metadata,
    sa.Column("replay_id", sa.Text, primary_key=True),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("bus", sa.Text, nullable=False),
    sa.Column("since", UtcTime, nullable=False),
    sa.Column("until", UtcTime, nullable=False),
    sa.Column("selection", JsonText, nullable=False),
    sa.Column("parts", JsonText, nullable=False),
    sa.Column("rate", sa.Float),
    sa.Column("new_ids", sa.Boolean, nullable=False),
    sa.Column("skip_delivered", sa.Boolean, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("started_at", UtcTime, nullable=False),
    sa.Column("next_at", UtcTime, nullable=False),
    sa.Column("ended_at", UtcTime),
    sa.Column("sequence", sa.Integer, nullable=False),
    sa.Column("position", JsonText, nullable=False),
    sa.UniqueConstraint("run"),
    one_of("state", ReplayState),
)

#: The rows of an archive file that a replay searched in one step, and those of them that a batch took.
replayed = sa.Table(
    "replayed",
    metadata,
    sa.Column("replay_id", sa.Text, sa.ForeignKey("replay.replay_id"), nullable=False),
    sa.Column("sequence", sa.Integer, nullable=False),
    sa.Column("file", sa.Text, nullable=False),
    sa.Column("part", sa.Integer, nullable=False),
    sa.Column("first_row", sa.BigInteger, nullable=False),
    sa.Column("end_row", sa.BigInteger, nullable=False),
    sa.Column("batch_id", sa.Text, sa.ForeignKey("batch.batch_id")),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("rows", sa.Text, nullable=False),
    sa.PrimaryKeyConstraint("replay_id", "sequence", "part", "file"),
)
sa.Index("ix_replayed_batch_id", replayed.c.batch_id)

_REPLAY = replay.c.replay_id == sa.bindparam("of_replay")

#: Adds a replay, unless its run already has one.
BEGIN_REPLAY = insert_or_skip(replay)

#: The replay of a run.
REPLAY_OF_RUN = sa.select(replay).where(replay.c.run == sa.bindparam("of_run"))

#: One replay.
REPLAY = sa.select(replay).where(_REPLAY)

#: All replays, newest first.
REPLAYS = sa.select(replay).order_by(replay.c.started_at.desc(), replay.c.replay_id)

#: Moves a running replay to a position and sets when its next batch may be planned (compare and set).
MOVE_REPLAY = (
    sa.update(replay)
    .where(_REPLAY, replay.c.state == "running", replay.c.sequence == sa.bindparam("expected"))
    .values(
        sequence=replay.c.sequence + 1,
        position=sa.bindparam("to", type_=JsonText),
        next_at=sa.bindparam("at", type_=UtcTime),
    )
)

_NOT_BEFORE = sa.bindparam("now", type_=UtcTime)

#: The time of a replay's next batch, or now if that is later. It records that a process is attending to the replay.
_ATTENDED = sa.case((replay.c.next_at < _NOT_BEFORE, _NOT_BEFORE), else_=replay.c.next_at)

#: Moves a replay from one state to another (compare and set).
SET_REPLAY_STATE = (
    sa.update(replay)
    .where(_REPLAY, replay.c.state == sa.bindparam("expected"))
    .values(state=sa.bindparam("to"), next_at=_ATTENDED)
)

#: Resumes a paused replay, for another run.
HAND_OVER_REPLAY = (
    sa.update(replay)
    .where(_REPLAY, replay.c.state == "paused")
    .values(state="running", run=sa.bindparam("to_run"), next_at=_ATTENDED)
)

#: Defers the next batch of a replay.
POSTPONE_REPLAY = sa.update(replay).where(_REPLAY).values(next_at=sa.bindparam("at", type_=UtcTime))

#: Ends a replay that has not ended.
END_REPLAY = (
    sa.update(replay)
    .where(_REPLAY, replay.c.state.in_(["running", "paused"]))
    .values(state=sa.bindparam("to"), ended_at=sa.bindparam("now", type_=UtcTime))
)

_IN_ORDER = (replayed.c.sequence, replayed.c.part, replayed.c.file)

#: The rows that a replay has searched.
REPLAYED = sa.select(replayed).where(replayed.c.replay_id == sa.bindparam("of_replay")).order_by(*_IN_ORDER)

#: The rows of one file that a replay has searched.
REPLAYED_OF = REPLAYED.where(replayed.c.file == sa.bindparam("of_file"))

#: The rows that a batch took.
REPLAYED_BY = sa.select(replayed).where(replayed.c.batch_id == sa.bindparam("of_batch")).order_by(*_IN_ORDER)

#: The uncommitted batches of a replay.
OPEN_REPLAY_BATCHES = sa.select(batch).where(
    UNCOMMITTED, batch.c.kind == "replay", batch.c.replay_id == sa.bindparam("of_replay")
)

#: Replays that are running, or have a batch that is not routed, and that no process has attended to since the given
#: time; the longest unattended first.
UNATTENDED_REPLAYS = (
    sa.select(replay)
    .where(
        replay.c.next_at < sa.bindparam("before", type_=UtcTime),
        sa.or_(
            replay.c.state == "running",
            sa.exists().where(
                UNCOMMITTED,
                batch.c.kind == "replay",
                batch.c.state == "buffered",
                batch.c.replay_id == replay.c.replay_id,
            ),
        ),
    )
    .order_by(replay.c.next_at, replay.c.replay_id)
)


class Replays(Aggregate):
    """Requests to redeliver archived events, and the rows that they searched."""

    def begin(self, replay: Replay) -> Replay:
        """Add a replay and return it; if its run already has one, return that one."""
        values = vars(replay) | {
            "selection": dict(replay.selection),
            "parts": msgspec.to_builtins(replay.parts),
            "position": msgspec.to_builtins(replay.position),
        }
        with self._writing() as connection:
            connection.execute(TAKE_TURN)  # so that `Retention.mark_kept` does not miss the replay
            connection.execute(BEGIN_REPLAY, values)
            return _to_replay(connection.execute(REPLAY_OF_RUN, {"of_run": replay.run}).one())

    def get(self, replay_id: str) -> Replay:
        """Return a replay. Raises NotFoundError if there is no such replay."""
        row = self._first(REPLAY, {"of_replay": replay_id})
        if row is None:
            raise NotFoundError(f"There is no replay {replay_id} in this ledger.")
        return _to_replay(row)

    def find_for_run(self, run: str) -> Replay | None:
        """Return the replay that a run has begun; None if there is none."""
        row = self._first(REPLAY_OF_RUN, {"of_run": run})
        return None if row is None else _to_replay(row)

    def all(self) -> list[Replay]:
        """Return all replays, newest first."""
        return [_to_replay(row) for row in self._rows(REPLAYS)]

    def keeps_delivery_ids(self, replay_id: str) -> bool:
        """Return whether deliveries of a replay keep their original ids; False for an id that is not a replay."""
        row = self._first(sa.select(replay.c.new_ids).where(_REPLAY), {"of_replay": replay_id})
        return row is not None and not row.new_ids

    def set_state(self, replay_id: str, expected: ReplayState, to: ReplayState) -> bool:
        """Pause a running replay, or resume a paused one; return False if it is in another state."""
        change = {"of_replay": replay_id, "expected": expected, "to": to, "now": self._now()}
        return self._change(SET_REPLAY_STATE, change) == 1

    def hand_over(self, replay_id: str, run: str) -> bool:
        """Resume a paused replay for another run that has no replay; return False if it is not paused."""
        with self._writing() as connection:
            change = {"of_replay": replay_id, "to_run": run, "now": self._now()}
            return connection.execute(HAND_OVER_REPLAY, change).rowcount == 1

    def defer(self, replay_id: str, until: datetime) -> None:
        """Set the time before which the next batch of a replay is not planned."""
        self._change(POSTPONE_REPLAY, {"of_replay": replay_id, "at": until})

    def unattended(self, before: datetime) -> list[Replay]:
        """Return the replays that no process has attended to since the given time, the longest unattended first.

        They are running, or have a batch that is not routed. A process attends to a replay by planning its batches,
        waiting for it or changing it.
        """
        return [_to_replay(row) for row in self._rows(UNATTENDED_REPLAYS, {"before": before})]

    def end(self, replay_id: str, state: ReplayState) -> bool:
        """Move a replay that has not ended to `done` or `cancelled`; return False if it has ended."""
        change = {"of_replay": replay_id, "to": state, "now": self._now()}
        return self._change(END_REPLAY, change) == 1

    def move(
        self,
        replay: Replay,
        position: ReplayPosition,
        next_at: datetime,
        taken: Sequence[Replayed],
        batch: Batch | None = None,
        file: BatchFile | None = None,
    ) -> bool:
        """Move a replay to a position, and record the rows it searched and the batch, if any, that takes some of them.

        Changes nothing and returns False if the replay is no longer running, or if another process moved it from the
        position in `replay`. The next batch is not planned before `next_at`.
        """
        change = {
            "of_replay": replay.replay_id,
            "expected": replay.sequence,
            "to": msgspec.to_builtins(position),
            "at": next_at,
        }
        with self._writing() as connection:
            if connection.execute(MOVE_REPLAY, change).rowcount == 0:
                return False
            if batch is not None and file is not None:
                connection.execute(INSERT_BATCH, vars(batch))
                record_file(connection, file)
            if taken:
                connection.execute(insert(replayed), [vars(each) for each in taken])
        return True

    def searched(self, replay_id: str) -> list[Replayed]:
        """Return the rows that a replay has searched, in order of sequence."""
        return [Replayed(**row._mapping) for row in self._rows(REPLAYED, {"of_replay": replay_id})]

    def searched_in(self, replay_id: str, file: str) -> list[Replayed]:
        """Return the rows of one archive file that a replay has searched, in order."""
        of = {"of_replay": replay_id, "of_file": file}
        return [Replayed(**row._mapping) for row in self._rows(REPLAYED_OF, of)]

    def list_taken_by(self, batch_id: str) -> list[Replayed]:
        """Return the rows that a batch took."""
        return [Replayed(**row._mapping) for row in self._rows(REPLAYED_BY, {"of_batch": batch_id})]

    def open_batches(self, replay_id: str) -> list[Batch]:
        """Return the uncommitted batches of a replay."""
        return [to_batch(row) for row in self._rows(OPEN_REPLAY_BATCHES, {"of_replay": replay_id})]


def _to_replay(row: sa.Row[Any]) -> Replay:
    values = dict(row._mapping)
    values["parts"] = msgspec.convert(values["parts"], tuple[ReplayPart, ...])
    values["position"] = msgspec.convert(values["position"], ReplayPosition)
    return Replay(**values)
